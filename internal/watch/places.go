package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Places are where a change may change what files say: directories, each by its
// path without links, and in each the names that matter. Directories and never
// files: a watch on a file ends with the first rename over it.
type Places struct {
	names   map[string]map[string]bool
	matters func(name string) bool // of a directory that is traced itself; nil for none
}

// anyName among the names stands for all names that matter.
const anyName = "*"

// NewPlaces is no places yet. Matters says which names do in directories that are
// traced themselves; nil for none.
func NewPlaces(matters func(name string) bool) *Places {
	return &Places{names: map[string]map[string]bool{}, matters: matters}
}

// PlacesOf files as their paths lead now.
func PlacesOf(paths ...string) *Places {
	p := NewPlaces(nil)
	for _, path := range paths {
		p.Trace(path)
	}
	return p
}

// Trace a path as the system follows it, and add what may lead it elsewhere:
// every link on the way, the first name that is missing, and the last.
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

// mostLinks to follow in one path; more are taken for a circle.
const mostLinks = 40

// concern tells whether what happened to the file of this name matters.
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

// split a path into its names.
func split(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(name string) bool {
		return name == "" || name == "."
	})
}
