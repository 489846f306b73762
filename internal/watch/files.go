package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/files"
)

// Read reads small files together and returns the contents that all of them had at one moment. It reads again
// if files change meanwhile, as when the ..data link of a Secret is swapped. The second map holds
// the errors of files that cannot be read. Read fails if the files keep changing.
func Read(most int64, paths ...string) (map[string][]byte, map[string]error, error) {
	c, err := Still(func() contents { return readAll(most, paths) }, contents.equal)
	return c.data, c.faults, err
}

// Still reads until two readings in a row are equal, and returns the second.
func Still[T any](read func() T, equal func(a, b T) bool) (none T, err error) {
	const (
		attempts = 5
		pause    = 10 * time.Millisecond
	)
	before := read()
	for range attempts {
		now := read()
		if equal(before, now) {
			return now, nil
		}
		before = now
		time.Sleep(pause)
	}
	return none, fmt.Errorf("changed while they were read, %d times over, expected them to come to rest", attempts)
}

// contents holds the data of readable files, and the errors of unreadable ones, by path.
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
		data, err := ReadFile(path, most)
		if err == nil && int64(len(data)) > most {
			err = fmt.Errorf("larger than expected, at most %d bytes", most)
		}
		if err != nil {
			c.faults[path] = err
			continue
		}
		c.data[path] = data
	}
	return c
}

// ReadFile reads a regular file, and one byte more than most of a larger one. It refuses pipes and
// devices, where reading may never end. Its errors do not name the path.
func ReadFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := files.Read(path, most+1)
	if err != nil {
		return nil, WithoutPath(err)
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
