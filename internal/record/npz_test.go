package record

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

// member is one entry of an archive.
type member struct {
	name string
	data []byte
}

// npzFile builds an archive as numpy.savez (Store) or numpy.savez_compressed (Deflate) does.
func npzFile(method uint16, members ...member) []byte {
	var file bytes.Buffer
	archive := zip.NewWriter(&file)
	for _, m := range members {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: m.name, Method: method})
		if err == nil {
			_, err = w.Write(m.data)
		}
		if err != nil {
			panic(err) // only the test itself can cause it
		}
	}
	if err := archive.Close(); err != nil {
		panic(err)
	}
	return file.Bytes()
}

func labelsFile(values ...byte) []byte {
	return npyFile(dict("|u1", fmt.Sprintf("(%d,)", len(values))), values...)
}

func writeTemp(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadArchive(t *testing.T) {
	two := []member{{"passes.npy", labelsFile(1)}, {"readme.txt", []byte("?")}, {"labels.npy", labelsFile(2, 3)}}
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		path := writeTemp(t, "run.npz", npzFile(method, two...))
		for name, want := range map[string][]int64{
			"passes": {1}, "passes.npy": {1}, "labels": {2, 3}, "labels.npy": {2, 3},
		} {
			a, err := readMember(path, name)
			if err != nil || !slices.Equal(a.Int64, want) {
				t.Errorf("member %s: got %+v, %v, want %v", name, a, err, want)
			}
			a, err = ReadFile(path + ":" + name)
			if err != nil || !slices.Equal(a.Int64, want) {
				t.Errorf("path with :%s: got %+v, %v, want %v", name, a, err, want)
			}
		}
		single := writeTemp(t, "single.npz", npzFile(method, two[1:]...))
		if a, err := ReadFile(single); err != nil || !slices.Equal(a.Int64, []int64{2, 3}) {
			t.Errorf("the only array: got %+v, %v, want [2 3]", a, err)
		}
		// The name of the file does not matter.
		odd := writeTemp(t, "odd.npy", npzFile(method, two[2]))
		if a, err := ReadFile(odd); err != nil || !slices.Equal(a.Int64, []int64{2, 3}) {
			t.Errorf("an archive named .npy: got %+v, %v, want [2 3]", a, err)
		}
	}
}

func TestReadArchiveErrors(t *testing.T) {
	good := labelsFile(1, 2, 3)
	archive := npzFile(zip.Store, member{"a.npy", good})
	damaged := bytes.Clone(archive)
	damaged[bytes.Index(damaged, good)+len(good)-1] = 9
	// The directory claims to start a byte late, so that the member starts a byte before the file.
	before := bytes.Clone(archive)
	directory := before[len(before)-6:]
	binary.LittleEndian.PutUint32(directory, binary.LittleEndian.Uint32(directory)+1)
	tests := []struct {
		name   string
		file   []byte
		member string
		want   string // after the path
	}{
		{"several named", npzFile(zip.Store, member{"passes.npy", good}, member{"labels.npy", good}), "",
			`of "passes", "labels"`},
		{"no such array", archive, "b", `: the archive holds no array "b": expected one of "a"`},
		{"no array", npzFile(zip.Store, member{"readme.txt", good}), "",
			": the archive holds no array: expected a member with a name in .npy"},
		{"a .pt", npzFile(zip.Store, member{"run/data.pkl", good}), "", ": no .npz archive, but a file of PyTorch (python -m ckd convert"},
		{"name twice", npzFile(zip.Store, member{"a.npy", good}, member{"a.npy", good}), "a",
			`: the archive holds 2 arrays "a": expected one`},
		{"not an archive", good, "a", `: one array without a name: expected an .npz archive that holds "a"`},
		{"archive cut", archive[:len(archive)-10], "", ": the archive cannot be read: zip: not a valid zip file"},
		{"member too long", npzFile(zip.Deflate, member{"a.npy", append(good, 0)}), "",
			fmt.Sprintf("(a.npy): byte %d: 1 bytes after the data", len(good))},
		{"checksum", damaged, "",
			fmt.Sprintf("(a.npy): byte %d: cannot be read: zip: checksum error", len(good))},
		{"member before the start", before, "", "(a.npy): cannot be read: EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeTemp(t, "run.npz", tt.file)
			a, err := readMember(path, tt.member)
			if err == nil || a != nil {
				t.Fatalf("got %v and %v, want an error alone", a, err)
			}
			if !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestReadArchiveAllocatesWhatIsThere sets both sizes of a member to 2^32-2 in the directory, and
// the .npy header claims as much. Only the missing bytes can stop the reader, which must not
// allocate what is claimed.
func TestReadArchiveAllocatesWhatIsThere(t *testing.T) {
	text := dict("|u1", "(4294967214,)")
	npy := npyFile(text, make([]byte, 100)...)
	file := npzFile(zip.Store, member{"a.npy", npy})
	entry := bytes.Index(file, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(file[entry+20:], 1<<32-2)
	binary.LittleEndian.PutUint32(file[entry+24:], uint32(10+len(text)+4294967214))
	var err error
	got := allocated(func() { _, err = readArchive("x.npz", bytes.NewReader(file), int64(len(file)), "") })
	if err == nil || got > 1<<20 {
		t.Errorf("%d bytes allocated, error %v; want less than 1 MiB and an error", got, err)
	}
}

// exceeds reports whether f allocates more than bound bytes. It is cheaper than allocated, for
// fuzzing, but also counts what other goroutines allocate and counts small objects late. It
// therefore measures up to three times.
func exceeds(bound uint64, f func()) bool {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for range 3 {
		metrics.Read(sample)
		before := sample[0].Value.Uint64()
		f()
		metrics.Read(sample)
		if sample[0].Value.Uint64()-before <= bound {
			return false
		}
	}
	return true
}

func FuzzReadNpz(f *testing.F) {
	passes := npyFile(dict("<f4", "(1, 1, 2)"), 0, 0, 0, 0x3f, 0, 0, 0, 0x3f)
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(npzFile(method, member{"passes.npy", passes}), "")
		f.Add(npzFile(method, member{"passes.npy", passes}, member{"labels.npy", labelsFile(1)}), "labels")
		f.Add(npzFile(method, member{"a.npy", npyFile(dict("|u1", "(90000,)"), make([]byte, 90000)...)}), "a.npy")
	}
	f.Add(passes, "")
	f.Add(labelsFile(1, 2), "")
	f.Fuzz(func(t *testing.T, file []byte, name string) {
		var a *Array
		var err error
		// Deflate makes at most 1032 bytes of one, each byte may become an int64, and slices that
		// grow are copied.
		bound := uint64(4<<20 + 1032*8*6*len(file))
		read := func() { a, err = readArchive("x.npz", bytes.NewReader(file), int64(len(file)), name) }
		if exceeds(bound, read) {
			t.Fatalf("more than %d bytes allocated for a file of %d", bound, len(file))
		}
		checkRead(t, a, err)

		// Few mutants of an archive are archives. A file inside a good archive must read as it does
		// alone.
		archive := npzFile(zip.Store, member{"a.npy", file})
		packed, errPacked := readArchive("x.npz", bytes.NewReader(archive), int64(len(archive)), "")
		alone, errAlone := Read("x.npz(a.npy)", bytes.NewReader(file), int64(len(file)))
		if fmt.Sprint(errPacked) != fmt.Sprint(errAlone) || errAlone == nil && !sameBits(packed, alone) {
			t.Fatalf("packed: %v, alone: %v", errPacked, errAlone)
		}
	})
}

// TestReadPipe reads a pipe, which has no size, to its end as an .npy file.
func TestReadPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(path); err != nil {
		t.Skip("no /dev/fd here")
	}
	go func() {
		_, _ = io.Copy(w, bytes.NewReader(labelsFile(4, 5)))
		_ = w.Close()
	}()
	if a, err := ReadFile(path); err != nil || !slices.Equal(a.Int64, []int64{4, 5}) {
		t.Errorf("got %+v, %v, want [4 5]", a, err)
	}
}
