package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// places are where a change may change the policies: directories, each by its
// path without links, and in each the names that matter. Directories and never
// files: a watch on a file ends with the first rename over it.
type places map[string]map[string]bool

// anyPolicy among the names stands for all policy files.
const anyPolicy = "*"

// placesOf paths as they lead now.
func placesOf(paths []string) places {
	p := places{}
	for _, path := range paths {
		p.trace(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			p.trace(filepath.Join(path, dataLink))
		}
	}
	for _, s := range look(paths) {
		p.trace(s.path)
	}
	return p
}

// concern tells whether what happened to the file of this name matters.
func (p places) concern(file string) bool {
	if _, itself := p[file]; itself {
		return true
	}
	name := filepath.Base(file)
	names := p[filepath.Dir(file)]
	return names[name] || names[anyPolicy] && isPolicy(name)
}

// trace a path as the system follows it, and add what may lead it elsewhere:
// every link on the way, the first name that is missing, and the last.
func (p places) trace(path string) {
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
		p.add(dir, anyPolicy)
	}
}

// mostLinks to follow in one path; more are taken for a circle.
const mostLinks = 40

func (p places) add(dir, name string) {
	if p[dir] == nil {
		p[dir] = map[string]bool{}
	}
	p[dir][name] = true
}

// split a path into its names.
func split(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(name string) bool {
		return name == "" || name == "."
	})
}
