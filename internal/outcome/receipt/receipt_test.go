package receipt

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

const (
	first  = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	second = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

func parse(t testing.TB, lines ...string) *Keys {
	t.Helper()
	k, err := ParseKeys("keys", []byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// drawn draws any receipt.
func drawn(t *rapid.T) Receipt {
	float := rapid.Custom(func(t *rapid.T) float32 {
		if rapid.Bool().Draw(t, "undefined") {
			return float32(math.NaN())
		}
		return rapid.Float32().Draw(t, "number")
	})
	r := Receipt{
		Version: rapid.Uint64().Draw(t, "version"), Time: rapid.Int64().Draw(t, "time"),
		Stratum: Stratum(rapid.IntRange(0, int(Strata)-1).Draw(t, "stratum")),
		Action:  rapid.Uint8().Draw(t, "action"), Reason: rapid.Uint8().Draw(t, "reason"), Gate: rapid.Uint8().Draw(t, "gate"),
		Predicted: rapid.Uint32Max(1<<24-1).Draw(t, "predicted"), Passes: rapid.Uint32Max(1<<24-1).Draw(t, "passes"),
		Settled: rapid.Bool().Draw(t, "settled"), Degenerate: rapid.Bool().Draw(t, "degenerate"), Review: rapid.Bool().Draw(t, "review"),
		Risk: float.Draw(t, "risk"), Propensity: float.Draw(t, "propensity"),
		Draw: rapid.Uint64().Draw(t, "draw"), Group: rapid.Uint64().Draw(t, "group"),
	}
	copy(r.Policy[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "policy"))
	for i := range r.Slices {
		r.Slices[i] = rapid.Uint16().Draw(t, "slice")
	}
	for i := range r.Scores {
		r.Scores[i] = float.Draw(t, "score")
	}
	return r
}

// TestOpen checks that Open returns what was sealed, and that all receipts have one size.
func TestOpen(t *testing.T) {
	keys := parse(t, first)
	s := NewSealer(keys)
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t)
		before := rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "before")
		sealed := s.Seal(bytes.Clone(before), &want)
		if !bytes.HasPrefix(sealed, before) || len(sealed) != len(before)+Size {
			t.Fatalf("%d bytes after %d, expected %d", len(sealed), len(before), Size)
		}
		got, id, err := keys.Open(sealed[len(before):])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("(-sealed +opened):\n%s", diff)
		}
		if !bytes.Equal(id[:], sealed[len(before)+4:][:24]) {
			t.Fatalf("id %x", id)
		}
	})
}

// TestChangedReceipts checks that no receipt opens that was changed in one bit, cut off, extended,
// or put together from two.
func TestChangedReceipts(t *testing.T) {
	keys := parse(t, first, second)
	s := NewSealer(keys)
	sealed, other := s.Seal(nil, &Receipt{Time: 1}), s.Seal(nil, &Receipt{Time: 2})
	refuse := func(what string, changed []byte) {
		t.Helper()
		if r, id, err := keys.Open(changed); !errors.Is(err, ErrForged) && !errors.Is(err, ErrUnknownKey) || r.Time != 0 || id != (ID{}) {
			t.Fatalf("%s: %v, %+v", what, err, r)
		}
	}
	t.Run("flipped", func(t *testing.T) {
		for bit := range 8 * Size {
			changed := bytes.Clone(sealed)
			changed[bit/8] ^= 1 << (bit % 8)
			refuse("a flipped bit", changed)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		for n := range sealed {
			refuse("the beginning", sealed[:n])
			refuse("the end", sealed[n+1:])
		}
	})
	t.Run("extended", func(t *testing.T) { refuse("a byte more", append(bytes.Clone(sealed), 0)) })
	t.Run("spliced", func(t *testing.T) {
		for n := 1; n < Size; n++ {
			if changed := append(bytes.Clone(sealed[:n]), other[n:]...); !bytes.Equal(changed, sealed) && !bytes.Equal(changed, other) {
				refuse("two receipts", changed)
			}
		}
	})
	t.Run("by other keys", func(t *testing.T) {
		refuse("another key file", NewSealer(parse(t, strings.Repeat("ab", 32))).Seal(nil, &Receipt{Time: 1}))
	})
	if _, _, err := keys.Open(sealed); err != nil {
		t.Fatal(err)
	}
}

func FuzzOpen(f *testing.F) {
	keys := parse(f, first, second)
	genuine := make(map[string]bool)
	for i := range 3 {
		// The salt is fixed, since the fuzzer's processes share their inputs.
		sealed := newSealer(keys, [saltSize]byte{byte(i)}).Seal(nil, &Receipt{Time: int64(i)})
		genuine[string(sealed)] = true
		f.Add(sealed)
	}
	f.Add([]byte{})
	f.Add(make([]byte, Size))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, _, err := keys.Open(data); (err == nil) != genuine[string(data)] {
			t.Fatalf("%x: %v, %+v", data, err, r)
		}
	})
}

// TestNothingShows checks that a receipt tells an observer nothing but the number of its sealer: of
// a deferral and an audit, and of equal ones, all sealed bytes differ as random ones do.
func TestNothingShows(t *testing.T) {
	s := NewSealer(parse(t, first))
	a, b := s.Seal(nil, &Receipt{Review: true, Stratum: Deferred}), s.Seal(nil, &Receipt{Review: true, Stratum: Deferred})
	same := 0
	for i := headerSize; i < Size; i++ {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 10 { // on average 0.6 of 158; more than 10 have a probability below 1e-9
		t.Errorf("two receipts of the same content share %d of %d sealed bytes", same, Size-headerSize)
	}
}

func TestKeyRotation(t *testing.T) {
	before, both, after := parse(t, first), parse(t, second, first), parse(t, second)
	retired, current := NewSealer(before).Seal(nil, &Receipt{}), NewSealer(both).Seal(nil, &Receipt{})
	for _, c := range []struct {
		name   string
		keys   *Keys
		sealed []byte
		err    error
	}{
		{"an old one, once both are known", both, retired, nil},
		{"a new one, by both", both, current, nil},
		{"a new one, by the new key alone", after, current, nil},
		{"an old one, by the new key alone", after, retired, ErrUnknownKey},
		{"a new one, by the old key", before, current, ErrUnknownKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := c.keys.Open(c.sealed); !errors.Is(err, c.err) {
				t.Errorf("%v, expected %v", err, c.err)
			}
		})
	}
}

// TestUniqueNumbers checks that no nonce comes twice under one key, and no ID at all, while several
// goroutines seal with each of several sealers.
func TestUniqueNumbers(t *testing.T) {
	const sealers, goroutines, receipts = 3, 4, 2000
	keys := parse(t, first)
	sealed := make([][]byte, sealers*goroutines)
	var wg sync.WaitGroup
	for i := range sealers {
		s := NewSealer(keys)
		for j := range goroutines {
			wg.Go(func() {
				var b []byte
				for range receipts {
					b = s.Seal(b, &Receipt{})
				}
				sealed[i*goroutines+j] = b
			})
		}
	}
	wg.Wait()
	ids, nonces := make(map[ID]bool), make(map[string]bool)
	for _, b := range sealed {
		for ; len(b) > 0; b = b[Size:] {
			_, id, err := keys.Open(b[:Size])
			if err != nil {
				t.Fatal(err)
			}
			ids[id] = true
			nonces[string(id[:saltSize])+string(nonce(b[:headerSize]))] = true
		}
	}
	if want := sealers * goroutines * receipts; len(ids) != want || len(nonces) != want {
		t.Errorf("%d ids and %d nonces, expected %d", len(ids), len(nonces), want)
	}
}

func TestParseKeys(t *testing.T) {
	raw, err := hex.DecodeString(first)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, first).keys
	for name, line := range map[string]string{
		"hex":                     first,
		"hex, upper case":         strings.ToUpper(first),
		"base64":                  base64.StdEncoding.EncodeToString(raw),
		"base64, unpadded":        base64.RawStdEncoding.EncodeToString(raw),
		"base64url":               base64.URLEncoding.EncodeToString(raw),
		"with a comment":          "# of May\n  " + first + "  # sealing\r\n",
		"after an empty line":     "\n" + first,
		"after a byte order mark": "\ufeff" + first + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			k, err := ParseKeys("keys", []byte(line))
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(k.keys, want, cmp.AllowUnexported(key{})) {
				t.Error("another key")
			}
		})
	}
	for _, c := range []struct{ name, text, fault string }{
		{"nothing", "# soon\n", "keys:1:1: key: none, expected at least one"},
		{"short hex", "\n  " + first[2:], "keys:2:3: key: expected 32 bytes as 64 hexadecimal digits or in base64, found 46 bytes"},
		{"short base64", "AAAA", "keys:1:1: key: expected 32 bytes as 64 hexadecimal digits or in base64, found 3 bytes"},
		{"a password", "correct horse", "keys:1:1: key: expected 32 bytes as 64 hexadecimal digits or in base64, found 13 characters"},
		{"twice", first + "\n#\n" + base64.StdEncoding.EncodeToString(raw), "keys:3:1: key: is the same as in line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := ParseKeys("keys", []byte(c.text))
			if err == nil || k != nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, expected %q", err, c.fault)
			}
			if err != nil && (strings.Contains(err.Error(), "horse") || strings.Contains(err.Error(), first[2:10])) {
				t.Errorf("the fault shows the key: %v", err)
			}
		})
	}
	_, err = ParseKeys("keys", []byte("x\n"+first+"\ny"))
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v, expected two faults", err)
	}
}

// TestHash compares with the definition: HMAC-SHA256, under a key derived by HKDF without a salt, of
// a 1, the policy's hash, the length of the id, the id, the number of passes and the means as
// float32, all big-endian.
func TestHash(t *testing.T) {
	raw, _ := hex.DecodeString(first)
	secret, err := hkdf.Key(sha256.New, raw, nil, "ckd draw 1", 32)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	policy := [32]byte{7, 8}
	message := append(append([]byte{1}, policy[:]...), 0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 30)
	message = binary.BigEndian.AppendUint32(message, math.Float32bits(0.1))
	message = binary.BigEndian.AppendUint32(message, math.Float32bits(0.9))
	mac.Write(message)
	want := binary.BigEndian.Uint64(mac.Sum(nil))
	for range 2 { // also with a hasher that was used before
		if got := parse(t, first, second).DrawKey().Hash(&policy, []byte("abc"), 30, []float64{0.1, 0.9}); got != want {
			t.Errorf("%x, expected %x", got, want)
		}
	}
}

// TestHashTellsApart checks that equal inputs have equal hashes in all processes with the key, and
// that anything else has another.
func TestHashTellsApart(t *testing.T) {
	type input struct {
		policy [32]byte
		id     string
		passes int
		mean   [2]float64
	}
	seen := make(map[uint64]string)
	add := func(name string, hash uint64) {
		t.Helper()
		if other, twice := seen[hash]; twice {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[hash] = name
	}
	plain := input{id: "17", passes: 30, mean: [2]float64{0.25, 0.75}}
	for name, change := range map[string]func(*input){
		"plain":           func(*input) {},
		"another policy":  func(in *input) { in.policy[31] = 1 },
		"another id":      func(in *input) { in.id = "18" },
		"a longer id":     func(in *input) { in.id = "17\x00" },
		"a pass more":     func(in *input) { in.passes = 31 },
		"another mean":    func(in *input) { in.mean[1] = float64(math.Nextafter32(0.75, 1)) },
		"means exchanged": func(in *input) { in.mean = [2]float64{0.75, 0.25} },
	} {
		got := plain
		change(&got)
		hash := parse(t, first).DrawKey().Hash(&got.policy, []byte(got.id), got.passes, got.mean[:])
		if again := NewSealer(parse(t, first, second)).DrawKey().Hash(&got.policy, []byte(got.id), got.passes, got.mean[:]); again != hash {
			t.Errorf("%s: another hash in another process", name)
		}
		add(name, hash)
	}
	add("another key", parse(t, second).DrawKey().Hash(&plain.policy, []byte(plain.id), plain.passes, plain.mean[:]))
	add("a group", parse(t, first).DrawKey().Group([]byte("17")))
	add("another group", parse(t, first).DrawKey().Group([]byte("18")))
	if parse(t, first).DrawKey().Group(nil) != 0 {
		t.Error("no group has a hash")
	}
	add("none", 0)
}

// race reports whether the race detector is on. It makes sync.Pool forget things on purpose.
var race bool

func TestAllocations(t *testing.T) {
	if race {
		t.Skip("under the race detector pools forget")
	}
	keys := parse(t, first)
	s, room, r := NewSealer(keys), make([]byte, 0, Size), Receipt{}
	policy, id, mean := [32]byte{}, []byte("study/1234"), make([]float64, 26)
	for name, f := range map[string]func(){
		"Seal":  func() { s.Seal(room, &r) },
		"Hash":  func() { s.DrawKey().Hash(&policy, id, 30, mean) },
		"Group": func() { s.DrawKey().Group(id) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	s, room, r := NewSealer(parse(b, first)), make([]byte, 0, Size), Receipt{}
	b.ReportAllocs()
	for b.Loop() {
		s.Seal(room, &r)
	}
}

func BenchmarkOpen(b *testing.B) {
	keys := parse(b, first)
	sealed := NewSealer(keys).Seal(nil, &Receipt{})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := keys.Open(sealed); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCiphers opens receipts of more sealers than ciphers are kept of, from several goroutines, and made
// up ones, of which none is kept.
func TestCiphers(t *testing.T) {
	keys := parse(t, first)
	var each sync.WaitGroup
	for range 4 {
		each.Go(func() {
			for range mostCiphers / 3 {
				sealed := NewSealer(keys).Seal(nil, &Receipt{Passes: 7})
				for range 2 {
					if r, _, err := keys.Open(sealed); err != nil || r.Passes != 7 {
						t.Errorf("%d passes: %v", r.Passes, err)
					}
				}
			}
		})
	}
	each.Wait()
	if n := len(keys.ciphers); n == 0 || n > mostCiphers {
		t.Errorf("%d ciphers are kept, expected at most %d", n, mostCiphers)
	}
	made := NewSealer(keys).Seal(nil, &Receipt{})
	made[len(made)-1] ^= 1
	had := len(keys.ciphers)
	if _, _, err := keys.Open(made); !errors.Is(err, ErrForged) || len(keys.ciphers) != had {
		t.Errorf("made up: %v, and %d ciphers are kept, expected %d", err, len(keys.ciphers), had)
	}
}

// TestGroupHashes finds a group under each key that sealed once.
func TestGroupHashes(t *testing.T) {
	parse := func(text string) *Keys {
		k, err := ParseKeys("keys", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	before, after := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	rotated := parse(after + "\n" + before + "\n")
	want := []uint64{parse(after).DrawKey().Group([]byte("g")), parse(before).DrawKey().Group([]byte("g"))}
	if got := rotated.GroupHashes([]byte("g")); !slices.Equal(got, want) {
		t.Errorf("hashes %x, want %x", got, want)
	}
}
