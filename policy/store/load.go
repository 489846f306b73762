package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Load reads policy files into one set. A path is a file of any name, or a directory, whose *.yaml and
// *.yml files are read in the order of their names, without subdirectories and *.cases.yaml. If anything is wrong, the
// error is a policy.Faults with all of it: first what cannot be read, then the faults in what can.
//
// Files that change while they are read are read again. It is a fault if they never stay unchanged.
func Load(paths ...string) (*policy.Set, error) {
	if len(paths) == 0 {
		return nil, policy.Faults{{Reason: "no policy files, expected at least one file or directory"}}
	}
	sources, err := watch.Still(func() []source { return read(find(paths)) }, func(a, b []source) bool { return slices.EqualFunc(a, b, source.equal) })
	if err != nil {
		return nil, policy.Faults{{Reason: "policy files: " + err.Error()}}
	}
	return parse(sources)
}

// source is a file to read, or the reason why there is none.
type source struct {
	name  string // name in faults: the given path, or one below it
	path  string // where it is, the links to its directory resolved
	data  []byte
	fault string // empty where the file can be read
}

func (s source) equal(other source) bool {
	return s.name == other.name && s.path == other.path && s.fault == other.fault && bytes.Equal(s.data, other.data)
}

// find returns the files that paths stand for.
func find(paths []string) []source {
	var sources []source
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			sources = append(sources, findIn(path)...)
		} else {
			sources = append(sources, source{name: path, path: path})
		}
	}
	return sources
}

// dataLink links to the directory of the files' current generation, in a directory that Kubernetes
// writes. One rename over it swaps them all.
const dataLink = "..data"

// findIn finds the policy files of a directory: of one that Kubernetes writes, those of its current
// generation alone. It follows each link to the directory once for all files.
func findIn(dir string) []source {
	root, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
	if err != nil {
		root, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return []source{unreadable(dir, dir, err)}
	}
	entries, err := os.ReadDir(root)
	if err != nil { // the path names the generation, so that equal faults of two generations differ
		return []source{unreadable(dir, root, err)}
	}
	var sources []source
	for _, entry := range entries {
		name, path := entry.Name(), filepath.Join(root, entry.Name())
		if info, err := os.Stat(path); isPolicy(name) && (err != nil || !info.IsDir()) { // a link that leads nowhere is a fault
			sources = append(sources, source{name: filepath.Join(dir, name), path: path})
		}
	}
	if len(sources) == 0 {
		return []source{{name: dir, path: dir, fault: "no policy files in the directory, expected *.yaml or *.yml"}}
	}
	return sources
}

// isPolicy reports whether a file of this name, in a directory, is a policy file. Cases that policies are
// held to lie beside them.
func isPolicy(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && !strings.HasSuffix(strings.TrimSuffix(name, ext), ".cases") && (ext == ".yaml" || ext == ".yml")
}

func unreadable(name, path string, err error) source {
	return source{name: name, path: path, fault: "cannot read: " + watch.WithoutPath(err).Error()}
}

// read reads every source once, and a byte more than policy.Parse accepts of a file that is too
// large.
func read(sources []source) []source {
	for i, s := range sources {
		if s.fault != "" {
			continue
		}
		data, err := watch.ReadFile(s.path, policy.MaxFileBytes)
		if sources[i].data = data; err != nil {
			sources[i] = unreadable(s.name, s.path, err)
		}
	}
	return sources
}

// parse parses the files, and reports faults of reading before faults in files.
func parse(sources []source) (*policy.Set, error) {
	var (
		files  []policy.File
		faults policy.Faults
	)
	for _, s := range sources {
		if s.fault != "" {
			faults = append(faults, policy.Fault{File: s.name, Reason: s.fault})
		} else {
			files = append(files, policy.File{Name: s.name, Data: s.data})
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
