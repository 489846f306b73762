package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Read returns up to most bytes of a file.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// Replacement is a file that will take the place of another, or that of none.
type Replacement struct {
	path string
	file *os.File // beside path; nil once the replacement has ended
}

// BeginReplacement creates an empty file beside path, through which Commit replaces it. Its name
// begins with a dot. A file of the same name that a crash has left is written over.
func BeginReplacement(path, temporary string, mode fs.FileMode) (*Replacement, error) {
	file, err := os.OpenFile(filepath.Join(filepath.Dir(path), temporary), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return nil, err
	}
	return &Replacement{path: path, file: file}, nil
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
	if err := os.Rename(r.file.Name(), r.path); err != nil {
		return err
	}
	r.file = nil
	return syncDirectory(filepath.Dir(r.path))
}

// Discard removes what was not committed. After a Commit without error it does nothing.
func (r *Replacement) Discard() {
	if r.file == nil {
		return
	}
	_ = r.file.Close()           // what it holds is not wanted
	_ = os.Remove(r.file.Name()) // the next replacement writes over what is left
	r.file = nil
}

// syncDirectory puts the names of a directory on the disk.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
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
func Replace(path string, data []byte, mode fs.FileMode) error {
	r, err := BeginReplacement(path, "."+filepath.Base(path)+".tmp", mode)
	if err != nil {
		return err
	}
	defer r.Discard()
	return r.Commit(data)
}
