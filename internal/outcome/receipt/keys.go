package receipt

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// keySize is the length of a key in bytes.
const keySize = 32

// Errors of Open.
var (
	// ErrUnknownKey says that the key of a receipt is not in the key file (any more).
	ErrUnknownKey = errors.New("the key of the receipt is not known: add it to the key file, which keeps retired keys below the first")
	// ErrForged says that a receipt is not what some daemon with the key has sealed.
	ErrForged = errors.New("not a receipt as it was sealed: it was changed, cut off, or made up")
)

// Keys holds the keys of a key file. The first seals, all of them open. Keys is safe for concurrent
// use.
type Keys struct {
	keys []key
	draw *DrawKey

	mu      sync.RWMutex
	ciphers map[cipherKey]cipher.AEAD // of sealers whose receipts have opened
}

// cipherKey names the cipher of a sealer: the position of its key, and its salt.
type cipherKey struct {
	key  int
	salt SealerID
}

// mostCiphers bounds the ciphers that are kept: some hundred bytes each. To derive one takes five times
// as long as to open a receipt.
const mostCiphers = 1024

type key struct {
	secret [keySize]byte
	id     [keyIDSize]byte // finds the key of a receipt
}

// ParseKeys reads a key file: 32 bytes a line, as 64 hexadecimal digits or in base64. A # begins a
// comment. Faults name the file as name, and never show a key.
func ParseKeys(name string, data []byte) (*Keys, error) {
	var (
		k      Keys
		faults strictyaml.Faults
		lines  []int // of the keys
	)
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as editors on Windows write it
	for i, line := range bytes.Split(data, []byte("\n")) {
		text, _, _ := bytes.Cut(line, []byte("#"))
		word := bytes.TrimSpace(text)
		if len(word) == 0 {
			continue
		}
		fault := strictyaml.Fault{File: name, Line: i + 1, Col: 1 + bytes.Index(line, word), Entry: "key"}
		secret, why := parseKey(string(word))
		if why != "" {
			fault.Reason = why
			faults = append(faults, fault)
			continue
		}
		if at := slices.IndexFunc(k.keys, func(other key) bool { return other.secret == secret }); at >= 0 {
			fault.Reason = fmt.Sprintf("is the same as in line %d, expected each key once", lines[at])
			faults = append(faults, fault)
			continue
		}
		k.keys, lines = append(k.keys, key{secret, keyID(secret)}), append(lines, i+1)
	}
	if len(faults) == 0 && len(k.keys) == 0 {
		faults = append(faults, strictyaml.Fault{File: name, Line: 1, Col: 1, Entry: "key",
			Reason: "none, expected at least one line of " + keyForm + ", as `openssl rand -hex 32` prints it"})
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	k.draw = newDrawKey(drawSecret(k.keys[0].secret))
	return &k, nil
}

const keyForm = "32 bytes as 64 hexadecimal digits or in base64"

// parseKey returns a key, or an error that says why the text is none.
func parseKey(word string) (secret [keySize]byte, why string) {
	var raw []byte
	var err error
	if len(word) == hex.EncodedLen(keySize) {
		raw, err = hex.DecodeString(word)
	} else {
		raw, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
		if err != nil {
			raw, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(word, "="))
		}
	}
	switch {
	case err != nil:
		return secret, fmt.Sprintf("expected %s, found %d characters that are neither", keyForm, len(word))
	case len(raw) != keySize:
		return secret, fmt.Sprintf("expected %s, found %d bytes", keyForm, len(raw))
	}
	return [keySize]byte(raw), ""
}

// IDs returns the public names of the keys in hex, in their order; nil for nil.
func (k *Keys) IDs() (ids []string) {
	if k == nil {
		return nil
	}
	for i := range k.keys {
		ids = append(ids, hex.EncodeToString(k.keys[i].id[:]))
	}
	return ids
}

// keyID returns a public name of a key. It is derived in one direction, so that it gives nothing
// away. Two keys may share one.
func keyID(secret [keySize]byte) [keyIDSize]byte {
	id := derive(secret, nil, "ckd key id 1")
	return [keyIDSize]byte(id[:keyIDSize])
}

// derive returns a key for one purpose, by HKDF with SHA-256.
func derive(secret [keySize]byte, salt []byte, purpose string) [keySize]byte {
	out, err := hkdf.Key(sha256.New, secret[:], salt, purpose, keySize)
	if err != nil {
		panic(err) // the length is a constant that HKDF can give
	}
	return [keySize]byte(out)
}

// newAEAD returns the cipher of the sealers with this salt.
func newAEAD(secret [keySize]byte, salt []byte) cipher.AEAD {
	sealing := derive(secret, salt, "ckd receipt 1")
	block, err := aes.NewCipher(sealing[:])
	if err != nil {
		panic(err) // the length of the key is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return aead
}

// DrawKey returns the key that draws audits. It is the same in all processes whose key files begin
// with the same key, so that they draw alike.
func (k *Keys) DrawKey() *DrawKey { return k.draw }

// GroupHashes returns what DrawKey.Group has made of a group: under the first key, and under each of the
// others, which was the first before it was replaced.
func (k *Keys) GroupHashes(group []byte) []uint64 {
	hashes := make([]uint64, len(k.keys))
	for i := range k.keys {
		hashes[i] = newDrawKey(drawSecret(k.keys[i].secret)).Group(group)
	}
	return hashes
}

// IDHashes returns what DrawKey.ID has made of an id, in the order of GroupHashes.
func (k *Keys) IDHashes(id []byte) []uint64 {
	hashes := make([]uint64, len(k.keys))
	for i := range k.keys {
		hashes[i] = newDrawKey(drawSecret(k.keys[i].secret)).ID(id)
	}
	return hashes
}

func drawSecret(secret [keySize]byte) [keySize]byte { return derive(secret, nil, "ckd draw 1") }

// ID is the unique number of a receipt: its sealer, and the number that it has there.
type ID [saltSize + 8]byte

// Sealer returns which sealer made the receipt.
func (id ID) Sealer() SealerID { return SealerID(id[:saltSize]) }

// Number returns which one of its sealer the receipt is, counted from 1.
func (id ID) Number() uint64 { return binary.BigEndian.Uint64(id[saltSize:]) }

// SealerID names a sealer: its salt.
type SealerID [saltSize]byte

// MarshalText returns the name in hex.
func (s SealerID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads what MarshalText returns.
func (s *SealerID) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != saltSize {
		return fmt.Errorf("sealer %.40q, expected %d hexadecimal digits", text, hex.EncodedLen(saltSize))
	}
	*s = SealerID(raw)
	return nil
}

// IDOf returns the unique number of a sealed receipt, which anybody can read. Only Open says whether
// the receipt is genuine.
func IDOf(sealed *[Size]byte) ID { return ID(sealed[1+keyIDSize:]) }

// Open returns the sealed receipt and its ID. The error is ErrUnknownKey or ErrForged.
func (k *Keys) Open(sealed []byte) (Receipt, ID, error) {
	if len(sealed) != Size || sealed[0] != version {
		return Receipt{}, ID{}, ErrForged
	}
	header := sealed[:headerSize]
	id := ID(header[1+keyIDSize:])
	err := ErrUnknownKey
	for i := range k.keys {
		if k.keys[i].id != [keyIDSize]byte(header[1:]) {
			continue
		}
		with := cipherKey{i, id.Sealer()}
		aead, kept := k.cipher(with)
		body, failed := aead.Open(make([]byte, 0, bodySize), nonce(header), sealed[headerSize:], header)
		if failed != nil {
			err = ErrForged
			continue // another key may have the same id
		}
		if !kept {
			k.keep(with, aead)
		}
		var r Receipt
		r.decode(body)
		return r, id, nil
	}
	return Receipt{}, ID{}, err
}

// cipher returns the cipher of a sealer, and whether it is kept.
func (k *Keys) cipher(key cipherKey) (aead cipher.AEAD, kept bool) {
	k.mu.RLock()
	aead, kept = k.ciphers[key]
	k.mu.RUnlock()
	if !kept {
		aead = newAEAD(k.keys[key.key].secret, key.salt[:])
	}
	return aead, kept
}

// keep keeps a cipher that has opened a receipt: made up salts take no place.
func (k *Keys) keep(key cipherKey, aead cipher.AEAD) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ciphers == nil || len(k.ciphers) >= mostCiphers {
		k.ciphers = make(map[cipherKey]cipher.AEAD)
	}
	k.ciphers[key] = aead
}

// nonce returns the nonce of a receipt: the end of the salt and the count, which never comes twice
// under the key that is derived from the salt.
func nonce(header []byte) []byte { return header[headerSize-12 : headerSize] }
