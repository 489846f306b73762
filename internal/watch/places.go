package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Places holds where a change may change the contents of files: directories, each by its path without
// links, and the names in them that matter. It holds directories, never files, because a watch on a
// file ends with the first rename over it.
type Places struct {
	names   map[string]map[string]bool
	matters func(name string) bool // in a directory that is traced itself; nil for none
}

// anyName stands for all names that matter.
const anyName = "*"

// NewPlaces returns an empty set of places. matters reports which names matter in directories that
// are traced themselves; nil means none.
func NewPlaces(matters func(name string) bool) *Places {
	return &Places{names: map[string]map[string]bool{}, matters: matters}
}

// PlacesOf returns the places of files, as their paths lead now.
func PlacesOf(paths ...string) *Places {
	p := NewPlaces(nil)
	for _, path := range paths {
		p.Trace(path)
	}
	return p
}

// Trace follows a path as the system does and adds the names that may lead it elsewhere: every link
// on the way, the first missing name, and the last name.
func (p *Places) Trace(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	root := filepath.VolumeName(path) + string(filepath.Separator)
	dir, rest := root, split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		next := filepath.Join(dir, name)
		info, err := os.Lstat(next)
		if err != nil {
			p.add(dir, name)
			return
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if len(rest) == 0 {
				p.add(dir, name)
			}
			dir = next
			continue
		}
		p.add(dir, name)
		target, err := os.Readlink(next)
		if links++; err != nil || links > mostLinks {
			return
		}
		if filepath.IsAbs(target) {
			dir = root
		}
		rest = slices.Concat(split(target), rest)
	}
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		p.add(dir, anyName)
	}
}

// mostLinks bounds the links followed in one path. A path with more is taken for a circle.
const mostLinks = 40

// concern reports whether an event on the file of this name matters.
func (p *Places) concern(file string) bool {
	if _, itself := p.names[file]; itself {
		return true
	}
	name := filepath.Base(file)
	names := p.names[filepath.Dir(file)]
	return names[name] || names[anyName] && p.matters != nil && p.matters(name)
}

func (p *Places) equal(q *Places) bool { return reflect.DeepEqual(p.names, q.names) }

func (p *Places) add(dir, name string) {
	if p.names[dir] == nil {
		p.names[dir] = map[string]bool{}
	}
	p.names[dir][name] = true
}

// split returns the names of a path.
func split(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(name string) bool {
		return name == "" || name == "."
	})
}
