package receipt

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// Sealer seals receipts under a key of its own, derived from the first key and a random salt.
type Sealer struct {
	aead   cipher.AEAD
	header [headerSize - 8]byte
	draw   *DrawKey
	_      [64]byte // keeps the counter, which every receipt writes, off the cache line of the others
	count  atomic.Uint64
}

// NewSealer returns a sealer. Make one for each process and key file, not one for each receipt.
func NewSealer(k *Keys) *Sealer {
	var salt [saltSize]byte
	rand.Read(salt[:]) // never fails: it crashes the program instead
	return newSealer(k, salt)
}

// newSealer returns the sealer with a salt, which must never come twice.
func newSealer(k *Keys, salt [saltSize]byte) *Sealer {
	s := &Sealer{draw: k.draw, aead: newAEAD(k.keys[0].secret, salt[:])}
	s.header[0] = version
	copy(s.header[1:], k.keys[0].id[:])
	copy(s.header[1+keyIDSize:], salt[:])
	return s
}

// DrawKey returns the draw key of the sealer's keys.
func (s *Sealer) DrawKey() *DrawKey { return s.draw }

// ID returns the name that the sealer has in its receipts.
func (s *Sealer) ID() SealerID { return SealerID(s.header[1+keyIDSize:]) }

// Sealed returns how many receipts were sealed: their numbers are 1 to Sealed.
func (s *Sealer) Sealed() uint64 { return s.count.Load() }

// Seal appends the receipt, sealed, to dst: Size bytes. It does not keep r.
func (s *Sealer) Seal(dst []byte, r *Receipt) []byte {
	at := len(dst)
	dst = slices.Grow(dst, Size)[:at+Size]
	sealed := dst[at:]
	header, body := sealed[:headerSize], sealed[headerSize:headerSize+bodySize]
	copy(header, s.header[:])
	binary.BigEndian.PutUint64(header[len(s.header):], s.count.Add(1))
	r.encode(body)
	s.aead.Seal(body[:0], nonce(header), body, header) // in place
	return dst
}
