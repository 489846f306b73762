package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Load reads policy files into one set. A path is a file of any name, or a directory, whose *.yaml and
// *.yml files are read in the order of their names, without subdirectories. If anything is wrong, the
// error is a policy.Faults with all of it: first what cannot be read, then the faults in what can.
//
// Files that change while they are read are read again. It is a fault if they never stay unchanged.
func Load(paths ...string) (*policy.Set, error) { return loadFrom(files.Machine, paths) }

// loadFrom loads the files of a disk that paths stand for.
func loadFrom(disk files.System, paths []string) (*policy.Set, error) {
	if len(paths) == 0 {
		return nil, policy.Faults{{Reason: "no policy files, expected at least one file or directory"}}
	}
	return load(disk, func() []source { return look(disk, paths) })
}

// load loads what look finds, once that is the same before and after reading.
func load(disk files.System, look func() []source) (*policy.Set, error) {
	const (
		attempts = 5
		pause    = 10 * time.Millisecond
	)
	for attempt := 1; ; attempt++ {
		before := look()
		found, faults := read(disk, before)
		restless, changed := difference(before, look())
		if !changed {
			return parse(found, faults)
		}
		if attempt == attempts {
			return nil, policy.Faults{{File: restless, Reason: fmt.Sprintf(
				"changed while it was read, %d times over, expected it to come to rest", attempts)}}
		}
		time.Sleep(pause)
	}
}

// source holds a file to read, or the reason why there is none.
type source struct {
	name  string // name in faults: the given path, or one below it
	path  string // where it is, the links to its directory resolved
	info  fs.FileInfo
	fault string // empty where the file can be read
}

// look finds the files that paths stand for.
func look(disk files.System, paths []string) []source {
	var sources []source
	for _, path := range paths {
		info, err := disk.Stat(path)
		switch {
		case err != nil:
			sources = append(sources, unreadable(path, path, err))
		case info.IsDir():
			sources = append(sources, lookInto(disk, path)...)
		default:
			sources = append(sources, regular(path, path, info))
		}
	}
	return sources
}

// dataLink links to the directory of the files' current generation, in a directory that Kubernetes
// writes. One rename over it swaps them all. The name of each file is a link through it.
const dataLink = "..data"

// lookInto finds the policy files of a directory. It follows each link to the directory, and to its
// current generation, once for all files.
func lookInto(disk files.System, dir string) []source {
	root, err := disk.EvalSymlinks(dir)
	if err != nil {
		return []source{unreadable(dir, dir, err)}
	}
	files := map[string]string{} // name to path
	// The generation decides which files there are: the links to them are not swapped with it, but
	// made and removed one by one.
	if generation, err := disk.Readlink(filepath.Join(root, dataLink)); err == nil {
		if !filepath.IsAbs(generation) {
			generation = filepath.Join(root, generation)
		}
		entries, err := disk.ReadDir(generation)
		if err != nil { // the path names the generation, so that equal faults of two generations differ
			return []source{unreadable(filepath.Join(dir, dataLink), generation, err)}
		}
		for _, entry := range entries {
			files[entry.Name()] = filepath.Join(generation, entry.Name())
		}
	}
	entries, err := disk.ReadDir(root)
	if err != nil {
		return []source{unreadable(dir, dir, err)}
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if target, err := disk.Readlink(path); err == nil && filepath.Clean(target) == filepath.Join(dataLink, entry.Name()) {
			continue
		}
		files[entry.Name()] = path
	}

	var sources []source
	for name, path := range files {
		if !isPolicy(name) {
			continue
		}
		// A link is followed. One that leads nowhere is a fault.
		info, err := disk.Stat(path)
		switch name = filepath.Join(dir, name); {
		case err != nil:
			sources = append(sources, unreadable(name, path, err))
		case !info.IsDir():
			sources = append(sources, regular(name, path, info))
		}
	}
	if len(sources) == 0 {
		return []source{{name: dir, path: dir, fault: "no policy files in the directory, expected *.yaml or *.yml"}}
	}
	slices.SortFunc(sources, func(a, b source) int { return strings.Compare(a.name, b.name) })
	return sources
}

// isPolicy reports whether a file of this name, in a directory, is a policy file.
func isPolicy(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

// regular returns the source of a file. It refuses one that could be read for ever, such as a pipe
// or a device.
func regular(name, path string, info fs.FileInfo) source {
	s := source{name: name, path: path, info: info}
	if !info.Mode().IsRegular() {
		s.fault = "cannot read: not a regular file"
	}
	return s
}

func unreadable(name, path string, err error) source {
	return source{name: name, path: path, fault: "cannot read: " + watch.WithoutPath(err).Error()}
}

// difference returns the name of the first source that differs between the two looks.
func difference(before, after []source) (name string, differ bool) {
	for i, a := range after {
		if i == len(before) || !same(before[i], a) {
			return a.name, true
		}
	}
	if len(before) > len(after) {
		return before[len(after)].name, true
	}
	return "", false
}

func same(a, b source) bool {
	if a.name != b.name || a.path != b.path || a.fault != b.fault || (a.info == nil) != (b.info == nil) {
		return false
	}
	return a.info == nil || os.SameFile(a.info, b.info) &&
		a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime())
}

// read reads every source once.
func read(disk files.System, sources []source) (found []policy.File, faults policy.Faults) {
	for _, s := range sources {
		if s.fault == "" {
			// A byte more than Parse accepts, so that it refuses a larger file.
			data, err := files.Read(disk, s.path, policy.MaxFileBytes+1)
			if err == nil {
				found = append(found, policy.File{Name: s.name, Data: data})
				continue
			}
			s = unreadable(s.name, s.path, err)
		}
		faults = append(faults, policy.Fault{File: s.name, Reason: s.fault})
	}
	return found, faults
}

// parse parses files and adds the faults found before.
func parse(from []policy.File, faults policy.Faults) (*policy.Set, error) {
	set, err := policy.Parse(from...)
	var found policy.Faults
	if errors.As(err, &found) {
		faults = append(faults, found...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return set, err
}
