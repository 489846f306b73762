package record

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
)

// convert is the advice for files that the Python package turns into .npy.
const convert = ": python -m ckd convert turns it into .npy"

// remedy names the kind of a file that is no .npy file by its first eight bytes, and says what to do
// with it. It returns an empty text for an unknown kind.
func remedy(first [8]byte) string {
	begins := func(with string) bool { return strings.HasPrefix(string(first[:]), with) }
	tensors := binary.LittleEndian.Uint64(first[:]) // of a safetensors file, the length of its header
	switch {
	case begins("PAR1"):
		return ": a Parquet file" + convert
	case begins("\x89HDF"):
		return `: an HDF5 file (h5py: numpy.save("passes.npy", file["passes"][...]))`
	case begins("\x1f\x8b"):
		return ": a file packed by gzip, expected it unpacked"
	case begins("\x80\x02\x8a\x0a"):
		return ": a file of PyTorch" + convert
	case begins("\x80") && first[1] >= 2 && first[1] <= 5:
		return ": a pickle, expected an array (numpy.save), not the object that holds it"
	case tensors > 1 && tensors < 1<<32:
		return ": a safetensors file" + convert
	case begins("{"), begins("["):
		return ": JSON" + convert
	case !bytes.ContainsFunc(first[:], func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }):
		return ": text, such as CSV" + convert
	}
	return ""
}
