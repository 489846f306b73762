package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ckd-project/ckd/internal/files"
)

// output collects the result of a command for a file or the standard output. It shows nothing
// before commit, so that a failed run leaves neither half a file nor half a page, and an older file
// as it was.
type output struct {
	bytes.Buffer
	ctx         *cmdContext
	path        string             // of the file; "" for the standard output
	replacement *files.Replacement // nil for the standard output, devices and pipes
}

// writeOutput writes what write produces to a path, or to the standard output for an empty path. It
// writes all of it or nothing.
func writeOutput(ctx *cmdContext, path string, inputs []string, write func(io.Writer) error) error {
	out, err := openOutput(ctx, path, inputs...)
	if err != nil {
		return err
	}
	defer out.discard()
	if err := write(out); err != nil {
		return interrupted(ctx, err)
	}
	return out.commit()
}

// openOutput prepares to write to a path, or to the standard output for an empty path. It fails
// before the work if the path cannot be written, or if it is one of the inputs. Inputs may be
// empty, or FILE.npz:NAME.
func openOutput(ctx *cmdContext, path string, inputs ...string) (*output, error) {
	o := &output{ctx: ctx, path: path}
	if path == "" {
		return o, nil
	}
	for _, input := range inputs {
		if sameFile(path, diskPath(input)) {
			return nil, usageError("--out %s is what is read, expected another file", path)
		}
	}
	mode := fs.FileMode(0o666)
	switch old, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case old.IsDir():
		return nil, fmt.Errorf("%s is a folder, expected a file", path)
	case !old.Mode().IsRegular(): // a device or a pipe
		return o, nil
	default:
		mode = old.Mode().Perm()
		file, err := os.OpenFile(path, os.O_WRONLY, 0) // is it writable?
		if err != nil {
			return nil, err
		}
		_ = file.Close() // nothing was written
		if o.path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	}
	temporary := fmt.Sprintf(".%s.%d.tmp", filepath.Base(o.path), os.Getpid())
	replacement, err := files.BeginReplacement(o.path, temporary, mode)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("--out %s: %w", path, failed.Err) // without the temporary name, which would confuse
	}
	if err != nil {
		return nil, err
	}
	o.replacement = replacement
	return o, nil
}

// commit writes what was collected.
func (o *output) commit() error {
	switch {
	case o.path == "":
		_, err := o.ctx.Stdout.Write(o.Bytes())
		return err
	case o.replacement == nil:
		return os.WriteFile(o.path, o.Bytes(), 0o666)
	}
	return o.replacement.Commit(o.Bytes())
}

// discard removes what was not committed.
func (o *output) discard() {
	if o.replacement != nil {
		o.replacement.Discard()
	}
}
