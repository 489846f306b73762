package server

import (
	"hash/maphash"

	"github.com/ckd-project/ckd/server/internal/wire"
)

// idSet finds ids that occur twice in one message. It is used again for the next message, so that
// in the steady state nothing is allocated.
type idSet struct {
	seed    maphash.Seed
	message uint32 // number of the current message
	slots   []idSlot
}

// idSlot holds an id that belongs to the current message if message is its number.
type idSlot struct {
	message uint32
	id      int32 // position in the message; negative: forgotten
}

// forget undoes the adding of an id.
func (s *idSlot) forget() {
	if s != nil {
		s.id = -1
	}
}

// begin empties the set and makes room for n ids.
func (x *idSet) begin(n int) {
	if x.message++; len(x.slots) < 2*n || x.message == 0 {
		slots := 16
		for slots < 2*n {
			slots *= 2
		}
		*x = idSet{seed: maphash.MakeSeed(), message: 1, slots: make([]idSlot, slots)}
	}
}

// add adds id i and returns its slot. It returns nil if the set has the id already.
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
