package record

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
)

// formatError reports a fault in the content of a file, and its place.
type formatError struct {
	File   string // the path, or path(member) inside an .npz archive
	Offset int64  // the byte at fault, in the member where there is one; -1 where no single byte is
	Msg    string // says what is wrong and what was expected
}

func (e *formatError) Error() string {
	if e.Offset < 0 {
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg)
}

// contentError returns a formatError about the array as a whole.
func contentError(file, format string, args ...any) error {
	return &formatError{File: file, Offset: -1, Msg: fmt.Sprintf(format, args...)}
}

// readFailure turns the error of a reader into one about the file. A damaged archive gives a
// formatError; other errors, such as a failing disk or a directory, are wrapped.
func readFailure(file string, offset int64, err error) error {
	if damaged(err) {
		return &formatError{File: file, Offset: offset, Msg: fmt.Sprintf("the archive cannot be read: %v", err)}
	}
	return fmt.Errorf("%s: byte %d: %w", file, offset, err)
}

// damaged reports whether an error says that an archive is damaged, rather than that it could not
// be read.
func damaged(err error) bool {
	for _, known := range []error{zip.ErrFormat, zip.ErrAlgorithm, zip.ErrChecksum, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}
