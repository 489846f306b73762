package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// Read small files together, so that what is returned was in all of them at one
// time: files that change meanwhile, as by the swap of a Secret's ..data link,
// are read again. Files that cannot be read are in the second map. It is an error
// if the files do not come to rest.
func Read(most int64, paths ...string) (map[string][]byte, map[string]error, error) {
	return readStill(func() contents { return readAll(most, paths) })
}

func readStill(read func() contents) (map[string][]byte, map[string]error, error) {
	const (
		attempts = 5
		pause    = 10 * time.Millisecond
	)
	before := read()
	for range attempts {
		now := read()
		if now.equal(before) {
			return now.data, now.faults, nil
		}
		before = now
		time.Sleep(pause)
	}
	return nil, nil, fmt.Errorf("changed while they were read, %d times over, expected them to come to rest", attempts)
}

// contents of files.
type contents struct {
	data   map[string][]byte
	faults map[string]error
}

func (c contents) equal(d contents) bool {
	return maps.EqualFunc(c.data, d.data, bytes.Equal) &&
		maps.EqualFunc(c.faults, d.faults, func(a, b error) bool { return a.Error() == b.Error() })
}

func readAll(most int64, paths []string) contents {
	c := contents{map[string][]byte{}, map[string]error{}}
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		data, err := readFile(path, most)
		if err != nil {
			c.faults[path] = err
			continue
		}
		c.data[path] = data
	}
	return c
}

// readFile of limited size that is a regular one: reading a pipe may never end.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, bare(err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than expected, at most %d bytes", most)
	}
	return data, nil
}

// bare is an error without the path, which the caller names.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
