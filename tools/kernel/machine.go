package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build" //nolint:revive,staticcheck // avo's programs read as assembly
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// machine is what differs between AVX-512 (wide) and AVX2: the registers, masks,
// and a few instructions that only the wide one has.
type machine struct{ wide bool }

// element is what the values of a panel come as.
type element struct {
	name  string
	bytes int
}

// shift is the logarithm of bytes.
func (e element) shift() int { return bits.Len(uint(e.bytes)) - 1 }

var (
	float32s = element{"float32", 4}
	float64s = element{"float64", 8}
)

// lanes is how many float64 a register holds.
func (m machine) lanes() int {
	if m.wide {
		return 8
	}
	return 4
}

// name of the function that does what with elements.
func (m machine) name(what string, from ...element) string {
	for _, e := range from {
		what += map[string]string{"float32": "Float32", "float64": "Float64"}[e.name]
	}
	if m.wide {
		return what + "AVX512"
	}
	return what + "AVX2"
}

// vector is a new register.
func (m machine) vector() reg.VecVirtual {
	if m.wide {
		return ZMM()
	}
	return YMM()
}

// zero is a new register of zeros.
func (m machine) zero() reg.VecVirtual {
	v := m.vector()
	VXORPD(v, v, v)
	return v
}

// broadcast is a register full of the float64 at from.
func (m machine) broadcast(from Mem) reg.VecVirtual {
	v := m.vector()
	VBROADCASTSD(from, v)
	return v
}

// copied is a register full of what is at from.
func (m machine) copied(from Op) reg.VecVirtual {
	v := m.vector()
	m.move(from, v)
	return v
}

// move copies from one register or place in memory to another.
func (machine) move(from, to Op) {
	_, load := from.(Mem)
	_, store := to.(Mem)
	if load || store {
		VMOVUPD(from, to)
	} else {
		VMOVAPD(from, to) // takes no port, other than VMOVUPD
	}
}

// mask says which lanes of a load or store are there.
type mask struct {
	k         reg.OpmaskVirtual // wide
	v, halved Op                // else, in memory: the sign of each float64, and of each float32
}

// first is the mask of the first left lanes, which may be more than there are,
// or fewer than none.
func (m machine) first(left reg.Register, at memory) mask {
	x := XMM()
	VMOVQ(left, x)
	v := m.vector()
	VPBROADCASTQ(x, v)
	if m.wide {
		k := K()
		VPCMPGTQ(constant("iota"), v, k)
		return mask{k: k}
	}
	VPCMPGTQ(constant("iota"), v, v)
	high := XMM()
	VEXTRACTI128(Imm(1), v, high)
	halved := XMM()
	VSHUFPS(Imm(0x88), high, v.AsX(), halved)
	VMOVDQU(halved, at[1])
	VMOVDQU(v, at[0])
	return mask{v: at[0], halved: at[1]}
}

// firstFloats is the mask of the first left lanes of a register of float32, which
// are not all.
func (m machine) firstFloats(left reg.Register) mask {
	x, v := XMM(), m.vector()
	VMOVQ(left, x)
	VPBROADCASTD(x, v)
	if m.wide {
		k := K()
		VPCMPGTD(constant("floatIota"), v, k)
		return mask{k: k}
	}
	VPCMPGTD(constant("floatIota"), v, v)
	return mask{v: v}
}

// loadFloats is a register of float32.
func (m machine) loadFloats(at Mem, only mask) reg.VecVirtual {
	v := m.vector()
	if m.wide {
		VMOVUPS_Z(at, only.k, v)
	} else {
		VMASKMOVPS(at, only.v, v)
	}
	return v
}

// load is a register of float64 from elements. A nil mask loads all.
func (m machine) load(from element, at Mem, only *mask) reg.VecVirtual {
	v := m.vector()
	switch {
	case only == nil && from == float32s:
		VCVTPS2PD(at, v)
	case only == nil:
		VMOVUPD(at, v)
	case m.wide && from == float32s:
		VCVTPS2PD_Z(at, only.k, v)
	case m.wide:
		VMOVUPD_Z(at, only.k, v)
	case from == float32s:
		VMOVDQU(only.halved, v.AsX())
		VMASKMOVPS(at, v.AsX(), v.AsX())
		VCVTPS2PD(v.AsX(), v)
	default:
		VMOVDQU(only.v, v)
		VMASKMOVPD(at, v, v)
	}
	return v
}

// store writes v. A nil mask stores all.
func (m machine) store(v reg.VecVirtual, at Mem, only *mask) {
	switch {
	case only == nil:
		VMOVUPD(v, at)
	case m.wide:
		VMOVUPD(v, only.k, at)
	default:
		VMASKMOVPD(v, m.copied(only.v), at)
	}
}

// memory is room for registers. The wide machine has enough of them and needs none.
type memory []Mem

func (m machine) memory(vectors int) memory {
	if m.wide {
		return nil
	}
	at := make(memory, vectors)
	for i := range at {
		at[i] = AllocLocal(8 * m.lanes())
	}
	return at
}

// hold copies v to room i, or else to a register, which is the one that was held
// before, if any.
func (at memory) hold(i int, v reg.VecVirtual, held *Op) {
	if at != nil {
		*held = at[i]
	} else if *held == nil {
		*held = ZMM()
	}
	VMOVUPD(v, *held)
}

// labels are numbered through.
var labels int

func label(what string) string {
	labels++
	return fmt.Sprintf("%s%d", what, labels)
}

// times runs the body n > 0 times.
func times(n reg.Register, body func()) {
	left := GP64()
	MOVQ(n, left)
	loop := label("loop")
	Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []Op{Imm(64)}}) // else it matters where the linker puts it
	Label(loop)
	body()
	DECQ(left)
	JNZ(LabelRef(loop))
}

// param is a new register with an argument.
func param(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

// argument is where an argument of one word lies.
func argument(name string) Mem {
	a, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return a.Addr
}
