package record

import (
	"archive/zip"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// isArchive recognises an .npz archive by its first bytes: the header of a member, or the directory
// of an empty archive.
func isArchive(r io.ReaderAt) bool {
	var first [4]byte
	if _, err := r.ReadAt(first[:], 0); err != nil {
		return false
	}
	return string(first[:]) == "PK\x03\x04" || string(first[:]) == "PK\x05\x06"
}

// readArchive reads one member of an .npz archive of size bytes. An empty name takes the only
// member.
func readArchive(path string, r io.ReaderAt, size int64, member string) (*Array, error) {
	// A member may claim to start outside of the file. The section answers with io.EOF then; a file
	// or another reader would return an error of its own that looks like a failing disk.
	archive, err := zip.NewReader(io.NewSectionReader(r, 0, size), size)
	if err != nil {
		return nil, contentError(path, "the archive cannot be read: %w: expected what numpy.savez writes", err)
	}
	f, err := choose(path, archive, member)
	if err != nil {
		return nil, err
	}
	name := path + "(" + f.Name + ")"
	body, err := f.Open()
	if err != nil {
		return nil, contentError(name, "cannot be read: %w", err)
	}
	defer body.Close()
	// The archive claims both sizes, but not the size of the file. No more memory than the file's
	// size is taken before bytes arrive.
	ahead := min(f.CompressedSize64, uint64(size))
	return read(name, body, int64(min(f.UncompressedSize64, math.MaxInt64)), int64(ahead))
}

// choose returns the member asked for among the archive's arrays.
func choose(path string, archive *zip.Reader, member string) (*zip.File, error) {
	var arrays, chosen []*zip.File
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, ".npy") {
			continue
		}
		arrays = append(arrays, f)
		if member == "" || f.Name == member || f.Name == member+".npy" {
			chosen = append(chosen, f)
		}
	}
	switch {
	case len(chosen) == 1:
		return chosen[0], nil
	case slices.ContainsFunc(archive.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/data.pkl") }):
		return nil, contentError(path, "no .npz archive, but a file of PyTorch%s", convert)
	case len(arrays) == 0:
		return nil, contentError(path, "the archive holds no array: expected a member with a name in .npy")
	case len(chosen) == 0:
		return nil, contentError(path, "the archive holds no array %q: expected one of %.400s", member, list(arrays))
	case member != "":
		return nil, contentError(path, "the archive holds %d arrays %q: expected one", len(chosen), member)
	}
	return nil, contentError(path, "the archive holds %d arrays: say which, as in %s:NAME, of %.400s",
		len(chosen), path, list(arrays))
}

// list names the arrays.
func list(arrays []*zip.File) string {
	var names []string
	for _, f := range arrays {
		names = append(names, strconv.Quote(strings.TrimSuffix(f.Name, ".npy")))
	}
	return strings.Join(names, ", ")
}
