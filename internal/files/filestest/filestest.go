// Package filestest has a file system whose operations fail in tests.
package filestest

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/ckd-project/ckd/internal/files"
)

// ErrInjected is in the error of every operation that fails.
var ErrInjected = errors.New("injected fault")

// How says how an operation fails.
type How int

// The ways to fail.
const (
	Refused How = iota // nothing happens, and the caller gets an error
	Short              // half of the bytes are read or written, and the caller gets an error
	Crash              // the operation happens, and then the process is gone: all that follows is refused
)

// Disk is a file system of which one operation fails. It is safe for concurrent use.
type Disk struct {
	under files.System
	how   How

	mu     sync.Mutex
	fails  int      // number of the operation that fails, from 1
	done   []string // operations so far
	failed bool
}

// Failing returns the file system under, of which the operation of this number, from 1, fails. With
// 0 none does.
func Failing(under files.System, operation int, how How) *Disk {
	return &Disk{under: under, fails: operation, how: how}
}

// Fail makes the operation of this number, counted from now, fail. With 0 none does.
func (d *Disk) Fail(operation int, how How) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails, d.how, d.done, d.failed = operation, how, nil, false
}

// Operations returns what was done since the last Fail, a line for each operation.
func (d *Disk) Operations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// Failed reports whether an operation has failed since the last Fail.
func (d *Disk) Failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// verdict says what becomes of an operation.
type verdict int

const (
	happens verdict = iota
	isRefused
	isShort
	isLast // it happens, and its caller never learns of it
)

// next counts an operation and says what becomes of it.
func (d *Disk) next(what, path string) (verdict, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, what+" "+path)
	if d.failed && d.how == Crash {
		return isRefused, d.fault(what, path)
	}
	if len(d.done) != d.fails {
		return happens, nil
	}
	d.failed = true
	switch d.how {
	case Short:
		return isShort, d.fault(what, path)
	case Crash:
		return isLast, d.fault(what, path)
	default:
		return isRefused, d.fault(what, path)
	}
}

func (d *Disk) fault(what, path string) error {
	return &fs.PathError{Op: what, Path: path, Err: fmt.Errorf("%w (%s)", ErrInjected, what)}
}

// do does an operation that has no half.
func do[T any](d *Disk, what, path string, operation func() (T, error)) (result T, err error) {
	v, fault := d.next(what, path)
	if v == isRefused || v == isShort {
		return result, fault
	}
	done, err := operation()
	if v == isLast {
		return result, fault
	}
	return done, err
}

// Stat implements files.System.
func (d *Disk) Stat(path string) (fs.FileInfo, error) {
	return do(d, "stat", path, func() (fs.FileInfo, error) { return d.under.Stat(path) })
}

// Readlink implements files.System.
func (d *Disk) Readlink(path string) (string, error) {
	return do(d, "readlink", path, func() (string, error) { return d.under.Readlink(path) })
}

// EvalSymlinks implements files.System.
func (d *Disk) EvalSymlinks(path string) (string, error) {
	return do(d, "evalsymlinks", path, func() (string, error) { return d.under.EvalSymlinks(path) })
}

// ReadDir implements files.System.
func (d *Disk) ReadDir(path string) ([]fs.DirEntry, error) {
	return do(d, "readdir", path, func() ([]fs.DirEntry, error) { return d.under.ReadDir(path) })
}

// Rename implements files.System.
func (d *Disk) Rename(from, to string) error {
	_, err := do(d, "rename", to, func() (struct{}, error) { return struct{}{}, d.under.Rename(from, to) })
	return err
}

// Remove implements files.System.
func (d *Disk) Remove(path string) error {
	_, err := do(d, "remove", path, func() (struct{}, error) { return struct{}{}, d.under.Remove(path) })
	return err
}

// OpenFile implements files.System.
func (d *Disk) OpenFile(path string, flag int, mode fs.FileMode) (files.File, error) {
	f, err := do(d, "open", path, func() (files.File, error) { return d.under.OpenFile(path, flag, mode) })
	if err != nil {
		return nil, err
	}
	return &file{f, d, path}, nil
}

// file is an open file of a Disk.
type file struct {
	files.File
	disk *Disk
	path string
}

// transfer does a read or a write, perhaps half of it.
func (f *file) transfer(what string, p []byte, operation func([]byte) (int, error)) (int, error) {
	switch v, fault := f.disk.next(what, f.path); v {
	case isRefused:
		return 0, fault
	case isShort:
		n, err := operation(p[:len(p)/2])
		return n, errors.Join(fault, err)
	case isLast:
		n, err := operation(p)
		return n, errors.Join(fault, err)
	}
	return operation(p)
}

func (f *file) Read(p []byte) (int, error) { return f.transfer("read", p, f.File.Read) }

func (f *file) Write(p []byte) (int, error) { return f.transfer("write", p, f.File.Write) }

func (f *file) Sync() error {
	_, err := do(f.disk, "sync", f.path, func() (struct{}, error) { return struct{}{}, f.File.Sync() })
	return err
}

// Close closes the file whatever else happens: the test must not run out of descriptors.
func (f *file) Close() error {
	_, fault := f.disk.next("close", f.path)
	return errors.Join(fault, f.File.Close())
}
