package receipt

import (
	"crypto/sha256"
	"encoding/binary"
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
type DrawKey struct {
	inner, outer [sha256.BlockSize]byte // the key, padded as HMAC has it
	idle         sync.Pool              // of *[]byte, for messages
}

// newDrawKey returns the draw key of a secret.
func newDrawKey(secret [keySize]byte) *DrawKey {
	k := &DrawKey{idle: sync.Pool{New: func() any { return new([]byte) }}}
	copy(k.inner[:], secret[:])
	k.outer = k.inner
	for i := range k.inner {
		k.inner[i] ^= 0x36
		k.outer[i] ^= 0x5c
	}
	return k
}

// What is hashed begins with one of these, so that no input hashes as a group.
const (
	ofInput byte = 1 + iota
	ofGroup
)

// Hash returns the hash of an input's id and passes under a policy, and never 0. A retry of the same
// passes under the same id has the same hash, other passes under the id another.
//
// Of the passes it takes their number and mean, rounded to float32. So it does not depend on how
// the passes were cut into messages, and passes that differ less than that count as the same.
func (k *DrawKey) Hash(policy *[32]byte, id []byte, passes int, mean []float64) uint64 {
	buffer := k.idle.Get().(*[]byte)
	b := append(append((*buffer)[:0], k.inner[:]...), ofInput)
	b = append(b, policy[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(id)))
	b = append(b, id...)
	b = binary.BigEndian.AppendUint32(b, uint32(passes))
	for _, x := range mean {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	return k.finish(buffer, b)
}

// Group returns the hash of a client's group, such as a patient; 0 for an empty one, and for no
// other.
func (k *DrawKey) Group(group []byte) uint64 {
	if len(group) == 0 {
		return 0
	}
	buffer := k.idle.Get().(*[]byte)
	b := append(append((*buffer)[:0], k.inner[:]...), ofGroup)
	return k.finish(buffer, append(b, group...))
}

// finish returns the HMAC of a message that follows the inner key, and gives the buffer back.
func (k *DrawKey) finish(buffer *[]byte, message []byte) uint64 {
	sum := sha256.Sum256(message)
	*buffer = append(append(message[:0], k.outer[:]...), sum[:]...)
	sum = sha256.Sum256(*buffer)
	k.idle.Put(buffer)
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}
