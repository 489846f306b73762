package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// column holds what the sweeps know of the columns of one register. The first three are in memory
// on the machine with few registers.
type column struct {
	mu, inv, shifted                Op
	sd, m2, m3, logSum, rest, steps reg.VecVirtual
}

// moments writes the assembly of scalarMoments. While it sweeps over the columns of one register,
// it adds up those of the next: that chain of additions takes longer than its own instructions. It
// also stores the next values as float64, so that they are converted only once.
func (m machine) moments(from element) {
	TEXT(m.name("moments", from), attr.NOSPLIT, "func(out *float64, padded int, aside *float64, data *"+from.name+
		", passes, width, stride int, n, rn, rd float64)")
	Pragma("noescape")
	Doc(m.name("moments", from) + " implements scalarMoments for passes, width > 0. aside has room for one register per pass, and one more.")
	out, padded, aside, data := param("out"), param("padded"), param("aside"), param("data")
	passes, width, stride := param("passes"), param("width"), param("stride")
	ADDQ(Imm(63), aside)
	ANDQ(I8(-64), aside)
	SHLQ(Imm(3), padded)
	SHLQ(Imm(uint64(from.shift())), stride)
	k := m.logConstants()

	sum, other, masks := m.zero(), m.zero(), m.memory(2)
	next := m.first(width, masks)
	at, slot := GP64(), GP64()
	start := func() {
		MOVQ(data, at)
		MOVQ(aside, slot)
	}
	// addNext adds a value to one sum, the next value to the other sum, and goes on to the next
	// pass.
	addNext := func(only *mask) {
		p := m.load(from, Mem{Base: at}, only)
		VMOVUPD(p, Mem{Base: slot})
		VADDPD(other, p, p)
		VMOVAPD(sum, other)
		VMOVAPD(p, sum)
		ADDQ(stride, at)
		ADDQ(Imm(uint64(8*m.lanes())), slot)
	}
	start()
	times(passes, func() { addNext(&next) })

	var c column
	spare := m.memory(3)
	centre := func() (mu, inv reg.VecVirtual) {
		mu = m.vector()
		VADDPD(other, sum, sum)
		VMULPD(m.broadcast(argument("rn")), sum, mu)
		return mu, m.inverseOf(mu)
	}
	hold := func(mu, inv reg.VecVirtual) {
		spare.hold(0, mu, &c.mu)
		spare.hold(1, inv, &c.inv)
		VMULPD(constant("shift"), inv, inv)
		spare.hold(2, inv, &c.shifted)
	}
	hold(centre())

	blocks := label("block")
	Label(blocks)
	for _, v := range []*reg.VecVirtual{&sum, &other, &c.sd, &c.m2, &c.m3, &c.logSum, &c.rest, &c.steps} {
		*v = m.zero()
	}
	ADDQ(Imm(uint64(m.lanes()*from.bytes)), data)
	SUBQ(Imm(uint64(m.lanes())), width)
	start()
	sweep := func(then func()) {
		times(passes, func() {
			p := m.copied(Mem{Base: slot})
			m.sweep(c, k, p)
			then()
		})
	}
	swept, few, last := label("swept"), label("few"), label("last")
	CMPQ(width, Imm(uint64(m.lanes())))
	JLT(LabelRef(few))
	sweep(func() { addNext(nil) })
	JMP(LabelRef(swept))
	Label(few)
	CMPQ(width, Imm(0))
	JLE(LabelRef(last))
	next = m.first(width, masks)
	sweep(func() { addNext(&next) })
	JMP(LabelRef(swept))
	Label(last)
	sweep(func() { ADDQ(Imm(uint64(8*m.lanes())), slot) })
	m.finish(c, k, out, padded)
	VZEROUPPER()
	RET()

	Label(swept)
	mu, inv := centre() // of the next columns: this division begins before those of finish
	m.finish(c, k, out, padded)
	hold(mu, inv)
	ADDQ(Imm(uint64(8*m.lanes())), out)
	JMP(LabelRef(blocks))
}

// logConstants holds the constants of the logarithm. The wide machine keeps them in registers.
type logConstants struct {
	logs, inverses   [2]reg.VecVirtual
	steps, tiny, ln2 Op
	remainder        []Op
	logTable         reg.GPVirtual  // of the narrow machine
	all              reg.VecVirtual // ones, of the narrow machine
}

func (m machine) logConstants() logConstants {
	k := logConstants{steps: constant("steps"), tiny: constant("tiny"), ln2: constant("ln2")}
	for i := range remainder {
		k.remainder = append(k.remainder, coefficient(i))
	}
	if !m.wide {
		k.logTable = GP64()
		LEAQ(logTable(), k.logTable)
		k.all = m.vector()
		VPCMPEQD(k.all, k.all, k.all)
		return k
	}
	for i := range 2 {
		k.logs[i] = m.copied(logTable().Offset(64 * i))
		k.inverses[i] = m.copied(inverseTable().Offset(64 * i))
	}
	k.steps, k.tiny, k.ln2 = m.copied(k.steps), m.copied(k.tiny), m.copied(k.ln2)
	for i, c := range k.remainder {
		k.remainder[i] = m.copied(c)
	}
	return k
}

// inverseOf returns 1/mu, or 0 for mu < tiny.
func (m machine) inverseOf(mu reg.VecVirtual) reg.VecVirtual {
	inv := m.copied(constant("one"))
	VDIVPD(mu, inv, inv)
	m.keepWhere(mu, notLess, constant("tiny"), inv)
	return inv
}

// sweep adds p to the sums about mu.
func (m machine) sweep(c column, k logConstants, p reg.VecVirtual) {
	r := m.copied(k.tiny)
	VFMADD231PD(c.shifted, p, r)
	s, logS, inverse := m.logarithm(r, k)
	d, d2 := m.vector(), m.vector()
	VSUBPD(c.mu, p, d)
	VMULPD(d, d, d2)
	VADDPD(d, c.sd, c.sd)
	VADDPD(d2, c.m2, c.m2)
	VFMADD231PD(d2, d, c.m3)
	VADDPD(s, c.steps, c.steps)
	VFMADD231PD(p, logS, c.logSum)
	q := s
	VFMSUB231PD(c.inv, p, q)
	t := inverse
	VMULPD(q, t, t)
	VMULPD(q, t, q)
	VFMADD231PD(m.polynomial(t, k), q, c.rest)
}

// logarithm generates the function of that name in scalar.go. It overwrites r.
func (m machine) logarithm(r reg.VecVirtual, k logConstants) (s, logS, inverse reg.VecVirtual) {
	s = m.vector()
	VANDPD(k.steps, r, s)
	exponent := m.vector()
	if m.wide {
		VGETEXPPD(r, exponent)
		logS, inverse = r, m.vector()
		VPSRLQ(Imm(48), r, logS)
		VMOVAPD(logS, inverse)
		VPERMI2PD(k.logs[1], k.logs[0], logS)
		VPERMI2PD(k.inverses[1], k.inverses[0], inverse)
		VPSUBQ(s, inverse, inverse)
	} else {
		VPSRLQ(Imm(52), r, exponent)
		VPOR(constant("2^52"), exponent, exponent)
		VSUBPD(constant("2^52+"), exponent, exponent)
		// Without tables in registers, a division is faster than a look into the second table,
		// whose values come from that division.
		VPSRLQ(Imm(48), r, r)
		VPAND(constant("step"), r, r)
		logS, inverse = m.zero(), m.copied(constant("one"))
		all := m.copied(k.all)
		VGATHERQPD(all, Mem{Base: k.logTable, Index: r, Scale: 8}, logS)
		VDIVPD(s, inverse, inverse)
	}
	VFMADD231PD(k.ln2, exponent, logS)
	return s, logS, inverse
}

// polynomial generates remainder(t).
func (m machine) polynomial(t reg.VecVirtual, k logConstants) reg.VecVirtual {
	p := m.copied(k.remainder[len(k.remainder)-1])
	for i := len(k.remainder) - 2; i >= 0; i-- {
		VFMADD213PD(k.remainder[i], t, p)
	}
	return p
}

// keepWhere sets values to 0 in the lanes in which x does not compare so with the bound.
func (m machine) keepWhere(x reg.VecVirtual, predicate uint64, bound Op, values ...reg.VecVirtual) {
	if m.wide {
		where := K()
		VCMPPD(Imm(predicate), bound, x, where)
		for _, v := range values {
			VMOVAPD_Z(v, where, v)
		}
		return
	}
	where := m.vector()
	VCMPPD(Imm(predicate), bound, x, where)
	for _, v := range values {
		VANDPD(where, v, v)
	}
}

// These are predicates of comparisons. NaN fulfils none of them.
const (
	notLess    = 0x1d
	greater    = 0x1e
	less       = 0x11
	notGreater = 0x12
)

// finish generates the function of that name in scalar.go. It overwrites the sums.
func (m machine) finish(c column, k logConstants, out, padded reg.GPVirtual) {
	n, rn, rd := argument("n"), argument("rn"), argument("rd")
	to := GP64()
	MOVQ(out, to)
	store := func(v reg.VecVirtual) {
		VMOVUPD(v, Mem{Base: to})
		ADDQ(padded, to)
	}

	byN, delta, e := m.broadcast(rn), m.vector(), m.copied(c.sd)
	VMULPD(byN, c.sd, delta)
	VFNMADD231PD(m.broadcast(n), delta, e)
	VFMADD231PD(byN, e, delta)
	mean := m.vector()
	VADDPD(c.mu, delta, mean)
	store(mean)
	w, m3 := c.sd, m.vector()
	VMULPD(delta, c.sd, w)
	VMULPD(constant("three"), c.m2, m3)
	VFNMADD231PD(constant("two"), w, m3)
	VFNMADD213PD(c.m3, delta, m3)
	zero := m.zero()
	VSUBPD(w, c.m2, c.m2)
	m.keepWhere(c.m2, notLess, constant("tiny"), c.m2, m3)

	variance, third := w, c.m3
	VMULPD(m.broadcast(rd), c.m2, variance)
	store(variance)
	VMULPD(byN, m3, third)
	store(third)

	divisor := m.vector()
	nats := m.vector()
	VMULPD(constant("half"), variance, nats)
	VADDPD(constant("epsilon"), mean, divisor)
	VDIVPD(divisor, nats, nats)
	store(nats)

	VMULPD(constant("three"), mean, divisor)
	VMULPD(variance, divisor, divisor)
	VANDPD(constant("absolute"), third, third)
	VDIVPD(divisor, third, third)
	m.keepWhere(divisor, greater, zero, third)
	store(third)

	u2, u3 := c.m2, m3
	VMULPD(c.inv, u2, u2)
	VMULPD(c.inv, u2, u2)
	VMULPD(c.inv, u3, u3)
	VMULPD(c.inv, u3, u3)
	VMULPD(c.inv, u3, u3)
	VFMADD132PD(c.inv, c.rest, c.logSum)
	e = m.broadcast(n)
	VSUBPD(c.steps, e, e)
	divergence := c.logSum
	VADDPD(e, divergence, divergence)
	small := m.vector()
	VMULPD(constant("half"), u2, small)
	VFMADD231PD(constant("-sixth"), u3, small)
	if m.wide {
		isSmall := K()
		VCMPPD(Imm(less), constant("narrow"), u2, isSmall)
		VMOVAPD(small, isSmall, divergence)
	} else {
		VCMPPD(Imm(less), constant("narrow"), u2, u2)
		VBLENDVPD(u2, small, divergence, divergence)
	}
	VMULPD(mean, divergence, divergence)
	VMAXPD(zero, divergence, divergence)
	VMULPD(byN, divergence, divergence)
	store(divergence)

	// What follows is xLogX of scalar.go.
	q := m.vector()
	VADDPD(k.tiny, mean, q)
	r := m.copied(k.tiny)
	VFMADD231PD(constant("shift"), mean, r)
	s, logS, t := m.logarithm(r, k)
	VSUBPD(s, q, q)
	VMULPD(q, t, t)
	p := m.polynomial(t, k)
	VMULPD(q, t, t)
	VFMADD231PD(p, t, q)
	VFMADD231PD(mean, logS, q)
	store(q)
}
