package server

import (
	"hash/maphash"

	"github.com/ckd-project/ckd/internal/wire"
)

// idSet finds ids that occur twice in one message. It is used again for each, so
// that in the steady state nothing is allocated.
type idSet struct {
	seed    maphash.Seed
	message uint32 // the message at hand
	slots   []idSlot
}

// idSlot is the place of an id, if it was filled for the message at hand.
type idSlot struct {
	message uint32
	id      int32 // negative: forgotten
}

// forget makes an id as if it had not been added.
func (s *idSlot) forget() {
	if s != nil {
		s.id = -1
	}
}

// begin makes the set empty, for n ids.
func (x *idSet) begin(n int) {
	if x.message++; len(x.slots) < 2*n || x.message == 0 {
		slots := 16
		for slots < 2*n {
			slots *= 2
		}
		*x = idSet{seed: maphash.MakeSeed(), message: 1, slots: make([]idSlot, slots)}
	}
}

// add adds id i, unless it is in the set already: then it returns nil.
func (x *idSet) add(ids *wire.IDs, i int) *idSlot {
	id := ids.At(i)
	for at := maphash.Bytes(x.seed, id); ; at++ {
		slot := &x.slots[at&uint64(len(x.slots)-1)]
		if slot.message != x.message {
			*slot = idSlot{x.message, int32(i)}
			return slot
		}
		if slot.id >= 0 && string(ids.At(int(slot.id))) == string(id) {
			return nil
		}
	}
}
