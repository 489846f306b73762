package decisionlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// file is where lines go. Its methods may hang, but for Close.
type file interface {
	io.WriteCloser
	Sync() error
	// look says what became of the file.
	look() fate
	// cutBack removes the last n bytes that were written, where it can.
	cutBack(n int)
	// ragged reports whether the file ended within a line when it was opened.
	ragged() bool
}

// fate is what others did to a file.
type fate int

const (
	current fate = iota // it is where it was
	moved               // its path leads elsewhere, or nowhere
	cut                 // it is shorter than what was written
)

// openFile opens a path for appending.
func openFile(path string) (file, error) {
	if path == Stdout {
		return stdout{}, nil
	}
	// Opened for reading too, a named pipe makes nobody wait for who reads it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d := &diskFile{File: f, path: path, regular: info.Mode().IsRegular()}
	if !d.regular {
		return d, nil
	}
	d.size = info.Size()
	if d.size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], d.size-1); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		d.torn = last[0] != '\n'
	}
	return d, nil
}

// diskFile is a file, or a pipe or a device that has a path.
type diskFile struct {
	*os.File
	path    string
	regular bool
	size    int64 // as it should be
	torn    bool
}

// Write implements io.Writer.
func (d *diskFile) Write(p []byte) (int, error) {
	n, err := d.File.Write(p)
	d.size += int64(n)
	return n, err
}

// Sync puts the file on the disk.
func (d *diskFile) Sync() error {
	if !d.regular {
		return nil
	}
	return d.File.Sync()
}

func (d *diskFile) look() fate {
	named, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return moved
	}
	own, failed := d.Stat()
	switch {
	case err != nil || failed != nil:
		return current // as far as is known
	case !os.SameFile(own, named):
		return moved
	case d.regular && own.Size() < d.size:
		return cut
	}
	return current
}

func (d *diskFile) cutBack(n int) {
	info, err := d.Stat()
	if err != nil || !d.regular || info.Size() != d.size { // others write to it too
		return
	}
	if d.Truncate(d.size-int64(n)) == nil {
		d.size -= int64(n)
	}
}

func (d *diskFile) ragged() bool { return d.torn }

// stdout is the standard output, which is never closed and never anew.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdout) Close() error                { return nil }
func (stdout) Sync() error                 { return nil }
func (stdout) look() fate                  { return current }
func (stdout) cutBack(int)                 {}
func (stdout) ragged() bool                { return false }
