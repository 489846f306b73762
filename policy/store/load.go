package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ckd-project/ckd/policy"
)

// Load reads policy files into one set. A path is a file of any name, or a
// directory, whose files *.yaml and *.yml are read in the order of their names,
// without those of its directories. If anything is wrong the error is a
// policy.Faults with everything that is: first what cannot be read, then the
// faults in what can.
func Load(paths ...string) (*policy.Set, error) {
	var (
		files  []policy.File
		faults policy.Faults
	)
	fault := func(path, reason string, args ...any) {
		faults = append(faults, policy.Fault{File: path, Reason: fmt.Sprintf(reason, args...)})
	}
	if len(paths) == 0 {
		fault("", "no policy files, expected at least one file or directory")
	}
	for _, path := range paths {
		names, err := list(path)
		if err != nil {
			fault(path, "cannot read: %s", reason(err))
			continue
		}
		if len(names) == 0 {
			fault(path, "no policy files in the directory, expected *.yaml or *.yml")
		}
		for _, name := range names {
			data, err := read(name)
			if err != nil {
				fault(name, "cannot read: %s", reason(err))
				continue
			}
			files = append(files, policy.File{Name: name, Data: data})
		}
	}
	set, err := policy.Parse(files...)
	var found policy.Faults
	if errors.As(err, &found) {
		faults = append(faults, found...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return set, err
}

// list is the files that a path stands for.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if ext := filepath.Ext(name); strings.HasPrefix(name, ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		file := filepath.Join(path, name)
		// A link is followed. One that leads nowhere stays in the list, and is a fault when read.
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			continue
		}
		files = append(files, file)
	}
	return files, nil
}

var errNotRegular = errors.New("not a regular file")

// read a file, or one byte more of it than Parse accepts.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular // reading a pipe or a device may never end
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, policy.MaxFileBytes+1))
}

// reason of an error without the path, which the fault names already.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
