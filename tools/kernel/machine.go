package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build" //nolint:revive,staticcheck // avo's programs read as assembly
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// machine hides the differences between AVX-512 (wide) and AVX2: registers, masks, and a few
// instructions that only the wide one has.
type machine struct{ wide bool }

// element is the type of the values of a panel.
type element struct {
	name  string
	bytes int
}

// shift returns the binary logarithm of bytes.
func (e element) shift() int { return bits.Len(uint(e.bytes)) - 1 }

var (
	float32s = element{"float32", 4}
	float64s = element{"float64", 8}
)

// lanes returns how many float64 a register holds.
func (m machine) lanes() int {
	if m.wide {
		return 8
	}
	return 4
}

// name returns the name of a function for this machine and these elements.
func (m machine) name(what string, from ...element) string {
	for _, e := range from {
		what += map[string]string{"float32": "Float32", "float64": "Float64"}[e.name]
	}
	if m.wide {
		return what + "AVX512"
	}
	return what + "AVX2"
}

// vector returns a new register.
func (m machine) vector() reg.VecVirtual {
	if m.wide {
		return ZMM()
	}
	return YMM()
}

// zero returns a new register of zeros.
func (m machine) zero() reg.VecVirtual {
	v := m.vector()
	VXORPD(v, v, v)
	return v
}

// broadcast returns a register full of the float64 at an address.
func (m machine) broadcast(from Mem) reg.VecVirtual {
	v := m.vector()
	VBROADCASTSD(from, v)
	return v
}

// copied returns a new register with a copy of a register or of memory.
func (m machine) copied(from Op) reg.VecVirtual {
	v := m.vector()
	m.move(from, v)
	return v
}

// move copies from one register or address to another.
func (machine) move(from, to Op) {
	_, load := from.(Mem)
	_, store := to.(Mem)
	if load || store {
		VMOVUPD(from, to)
	} else {
		VMOVAPD(from, to) // unlike VMOVUPD it needs no execution port
	}
}

// mask says which lanes a load or store has.
type mask struct {
	k         reg.OpmaskVirtual // lane mask of the wide machine
	v, halved Op                // masks of the narrow machine in memory: signs of float64 and float32
}

// first returns the mask of the first left lanes. left may be negative, or more than there are
// lanes.
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

// firstFloats returns the mask of the first left lanes of a register of float32. left must be fewer
// than there are.
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

// loadFloats returns a register of float32.
func (m machine) loadFloats(at Mem, only mask) reg.VecVirtual {
	v := m.vector()
	if m.wide {
		VMOVUPS_Z(at, only.k, v)
	} else {
		VMASKMOVPS(at, only.v, v)
	}
	return v
}

// load returns a register of float64 loaded from elements. A nil mask loads all.
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

// memory is local memory for registers. The wide machine has enough registers and needs none.
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

// hold copies v to local memory i. Without local memory it copies v to the register in held, which it
// makes at the first call.
func (at memory) hold(i int, v reg.VecVirtual, held *Op) {
	if at != nil {
		*held = at[i]
	} else if *held == nil {
		*held = ZMM()
	}
	VMOVUPD(v, *held)
}

// labels counts labels, so that each is unique.
var labels int

func label(what string) string {
	labels++
	return fmt.Sprintf("%s%d", what, labels)
}

// times generates a loop that runs the body n > 0 times.
func times(n reg.Register, body func()) {
	left := GP64()
	MOVQ(n, left)
	loop := label("loop")
	Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []Op{Imm(64)}}) // so that the speed does not depend on the linker
	Label(loop)
	body()
	DECQ(left)
	JNZ(LabelRef(loop))
}

// param returns a new register with an argument.
func param(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

// argument returns the address of an argument of one word.
func argument(name string) Mem {
	a, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return a.Addr
}
