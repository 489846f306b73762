package receipt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"sync"
)

// VersionHash returns the number by which receipts know the text of a model's version: the first 8
// bytes of its SHA-256.
func VersionHash(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}

// DrawKey makes keyed hashes (HMAC-SHA256) of inputs and groups, which only holders of the key file
// can predict or invert.
type DrawKey struct{ idle sync.Pool } // of *drawing

// NewDrawKey returns a draw key that no other process has.
func NewDrawKey() *DrawKey {
	var secret [keySize]byte
	rand.Read(secret[:]) // never fails: it crashes the program instead
	return newDrawKey(secret)
}

// drawing makes one hash at a time.
type drawing struct {
	mac     hash.Hash
	message []byte
}

// newDrawKey returns the draw key of a secret.
func newDrawKey(secret [keySize]byte) *DrawKey {
	return &DrawKey{sync.Pool{New: func() any { return &drawing{mac: hmac.New(sha256.New, secret[:])} }}}
}

// What is hashed begins with one of these, so that no input hashes as a group.
const (
	ofInput byte = 1 + iota
	ofGroup
	ofID
	ofSample
)

// Hash returns the hash of an input's id and passes under a policy, and never 0. A retry of the same
// passes under the same id has the same hash, other passes under the id another.
//
// Of the passes it takes their number and mean, rounded to float32. So it does not depend on how
// the passes were cut into messages, and passes that differ less than that count as the same.
func (k *DrawKey) Hash(policy *[32]byte, id []byte, passes int, mean []float64) uint64 {
	d := k.idle.Get().(*drawing)
	b := append(append(d.message[:0], ofInput), policy[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(id)))
	b = append(b, id...)
	b = binary.BigEndian.AppendUint32(b, uint32(passes))
	for _, x := range mean {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	d.message = b
	return k.sum(d)
}

// Group returns the hash of a client's group, such as a patient; 0 for an empty one, and for no
// other.
func (k *DrawKey) Group(group []byte) uint64 { return k.text(ofGroup, group) }

// ID returns the hash of a client's id of an input, by which holders of the keys find it again; 0 for an
// empty one, and for no other.
func (k *DrawKey) ID(id []byte) uint64 { return k.text(ofID, id) }

// Sample returns a hash of an id that tells nothing about its other hashes, to choose a share of inputs by;
// 0 for an empty id, and for no other.
func (k *DrawKey) Sample(id []byte) uint64 { return k.text(ofSample, id) }

// text returns the hash of a text of some kind; 0 for an empty one.
func (k *DrawKey) text(kind byte, text []byte) uint64 {
	if len(text) == 0 {
		return 0
	}
	d := k.idle.Get().(*drawing)
	d.message = append(append(d.message[:0], kind), text...)
	return k.sum(d)
}

// sum returns the hash of a drawing's message, and gives the drawing back.
func (k *DrawKey) sum(d *drawing) uint64 {
	d.mac.Reset()
	d.mac.Write(d.message)
	d.message = d.mac.Sum(d.message[:0])
	sum := binary.BigEndian.Uint64(d.message)
	k.idle.Put(d)
	return max(sum, 1)
}
