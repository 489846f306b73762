package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// System is a file system. Its methods do what the functions of packages os and filepath do, whose
// names they have.
type System interface {
	Stat(path string) (fs.FileInfo, error)
	Readlink(path string) (string, error)
	EvalSymlinks(path string) (string, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(path string) error
}

// File is an open file or directory.
type File interface {
	io.ReadWriteCloser
	Sync() error
}

// Machine is the file system of the machine.
var Machine System = machine{}

type machine struct{}

func (machine) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (machine) Readlink(path string) (string, error)       { return os.Readlink(path) }
func (machine) EvalSymlinks(path string) (string, error)   { return filepath.EvalSymlinks(path) }
func (machine) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (machine) Rename(from, to string) error               { return os.Rename(from, to) }
func (machine) Remove(path string) error                   { return os.Remove(path) }

func (machine) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err // not a File that holds nil
	}
	return f, nil
}

// Read returns up to most bytes of a file.
func Read(s System, path string, most int64) (data []byte, err error) {
	f, err := s.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// Replacement is a file that will take the place of another, or that of none.
type Replacement struct {
	system    System
	path      string
	temporary string // beside path; empty once the replacement has ended
	file      File
}

// BeginReplacement creates an empty file beside path, through which Commit replaces it. Its name
// begins with a dot. A file of the same name that a crash has left is written over.
func BeginReplacement(s System, path, temporary string, mode fs.FileMode) (*Replacement, error) {
	temporary = filepath.Join(filepath.Dir(path), temporary)
	file, err := s.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return nil, err
	}
	return &Replacement{system: s, path: path, temporary: temporary, file: file}, nil
}

// Commit puts data in the place of the file. Until it returns nil, the old file may still be there,
// whole; it never leaves a part of the new one. Data is on the disk before its name is, so that a
// crash leaves the old file or the new one.
func (r *Replacement) Commit(data []byte) error {
	_, err := r.file.Write(data)
	if err == nil {
		err = r.file.Sync()
	}
	if err := errors.Join(err, r.file.Close()); err != nil {
		return err
	}
	r.file = nil
	if err := r.system.Rename(r.temporary, r.path); err != nil {
		return err
	}
	r.temporary = ""
	return syncDirectory(r.system, filepath.Dir(r.path))
}

// Discard removes what was not committed. After a Commit without error it does nothing.
func (r *Replacement) Discard() {
	if r.file != nil {
		_ = r.file.Close() // what it holds is not wanted
		r.file = nil
	}
	if r.temporary != "" {
		_ = r.system.Remove(r.temporary) // the next replacement writes over what is left
		r.temporary = ""
	}
}

// syncDirectory puts the names of a directory on the disk.
func syncDirectory(s System, path string) error {
	dir, err := s.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	// Some file systems cannot, and then keep the order of names by themselves.
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return errors.Join(err, dir.Close())
	}
	return dir.Close()
}

// Replace puts data in the place of a file, whole or not at all.
func Replace(s System, path string, data []byte, mode fs.FileMode) error {
	r, err := BeginReplacement(s, path, "."+filepath.Base(path)+".tmp", mode)
	if err != nil {
		return err
	}
	defer r.Discard()
	return r.Commit(data)
}
