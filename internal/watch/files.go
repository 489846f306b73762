package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/files"
)

// Read reads small files together and returns what all of them held at one moment. It reads again
// if files change meanwhile, as when the ..data link of a Secret is swapped. The second map holds
// the errors of files that cannot be read. Read fails if the files keep changing.
func Read(disk files.System, most int64, paths ...string) (map[string][]byte, map[string]error, error) {
	return readStill(func() contents { return readAll(disk, most, paths) })
}

// readStill reads until two readings in a row agree.
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

// contents holds the data of files, and the errors of those that cannot be read, by path.
type contents struct {
	data   map[string][]byte
	faults map[string]error
}

func (c contents) equal(d contents) bool {
	return maps.EqualFunc(c.data, d.data, bytes.Equal) &&
		maps.EqualFunc(c.faults, d.faults, func(a, b error) bool { return a.Error() == b.Error() })
}

func readAll(disk files.System, most int64, paths []string) contents {
	c := contents{map[string][]byte{}, map[string]error{}}
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		data, err := readFile(disk, path, most)
		if err != nil {
			c.faults[path] = err
			continue
		}
		c.data[path] = data
	}
	return c
}

// readFile reads a regular file of at most the given number of bytes. It refuses pipes and devices,
// where reading may never end.
func readFile(disk files.System, path string, most int64) ([]byte, error) {
	info, err := disk.Stat(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := files.Read(disk, path, most+1)
	if err != nil {
		return nil, WithoutPath(err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than expected, at most %d bytes", most)
	}
	return data, nil
}

// WithoutPath returns an error of package os without its path, which the caller names.
func WithoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
