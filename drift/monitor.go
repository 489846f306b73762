package drift

import (
	"math"
	"sort"
)

// BlockInputs is how many inputs are added at a time: an eighth of the smallest
// window.
const BlockInputs = 8

// Windows are the numbers of inputs that are looked back on. Each is looked at
// anew after an eighth of it.
var Windows = [...]int{64, 256, 1024}

// Alarm is the |z| above which a signal is one.
//
// While a window is renewed once, its 8 looks are as good as 5 independent ones at so
// high a bar: 10^6 inputs are some 10^5 looks for each signal of each class, of which
// a normal z is above 5.5 in one of 2.6 10^7, and that of ranks less often. docs/drift.md
// has what that comes to.
const Alarm = 5.5

// Block is what some inputs, BlockInputs of them, say of one class.
type Block struct {
	Epistemic, Skewness float64 // sums of Quantiles.Below
	Predicted           float64 // how many had it predicted
}

// Signal is how far one thing has moved over one window.
type Signal struct {
	// Z is in standard errors: (A - 1/2)/sqrt((1/W + 1/m)/12), where A is the
	// probability that a live value exceeds one of the reference, so that it is above
	// 0 where live values are larger. With ties it is nearer to 0. Of predicted shares
	// it is the signed root of twice the log likelihood ratio of one share for both
	// against one for each, of counts half a count nearer to each other.
	Z float64
	// Shift is A - 1/2, in [-1/2, 1/2]; of predicted shares, live less reference.
	Shift float64
}

// Signals of one class over one window.
type Signals struct{ Epistemic, Skewness, Predicted Signal }

// Alarms is which signals of one class are alarms, over any window.
type Alarms struct{ Epistemic, Skewness, Predicted bool }

// Monitor looks at the windows of one model. It is for one goroutine at a time.
type Monitor struct {
	reference *Reference
	classes   int
	ring      []Block // [blocks of the largest window][classes]
	added     int     // blocks, ever
	windows   [len(Windows)]window
	alarms    []Alarms
}

// window is the sums over the last blocks, by class.
type window struct {
	inputs int
	of     float64  // standard errors of A to 1
	shares []bounds // of predicted counts that are no alarm
	sums   []Block  // as they are
	looked []Block  // as they were when they were looked at
	alarms []Alarms // of then
	full   bool     // it was looked at
}

// bounds are included.
type bounds struct{ low, high float64 }

// NewMonitor makes a Monitor for live inputs beside a reference.
func NewMonitor(r *Reference) *Monitor {
	k, size := len(r.Classes), float64(r.Inputs)
	m := &Monitor{
		reference: r, classes: k,
		ring: make([]Block, Windows[len(Windows)-1]/BlockInputs*k), alarms: make([]Alarms, k),
	}
	for i, inputs := range Windows {
		w := &m.windows[i]
		*w = window{
			inputs: inputs, of: 1 / standardError(inputs, r.Inputs),
			sums: make([]Block, k), looked: make([]Block, k), alarms: make([]Alarms, k),
		}
		for _, class := range r.Classes {
			w.shares = append(w.shares, sharesWithin(inputs, class.Predicted, size))
		}
	}
	return m
}

// Add adds a block: one of each class. It reports whether Alarms changed.
func (m *Monitor) Add(block []Block) bool {
	blocks := len(m.ring) / m.classes
	for i := range m.windows {
		w := &m.windows[i]
		if n := w.inputs / BlockInputs; m.added >= n {
			for k, old := range m.at(m.added - n) {
				w.sums[k].Epistemic -= old.Epistemic
				w.sums[k].Skewness -= old.Skewness
				w.sums[k].Predicted -= old.Predicted
			}
		}
		w.add(block)
	}
	copy(m.at(m.added), block)
	m.added++
	looked := false
	for i := range m.windows {
		w := &m.windows[i]
		n := w.inputs / BlockInputs
		if m.added < n || m.added%(n/8) != 0 {
			continue
		}
		if m.added%blocks == 0 { // what rounding has left behind
			clear(w.sums)
			for b := m.added - n; b < m.added; b++ {
				w.add(m.at(b))
			}
		}
		w.look()
		looked = true
	}
	return looked && m.update()
}

// at is the place of a block in the ring.
func (m *Monitor) at(block int) []Block {
	blocks := len(m.ring) / m.classes
	return m.ring[block%blocks*m.classes:][:m.classes]
}

func (w *window) add(block []Block) {
	for k, b := range block {
		w.sums[k].Epistemic += b.Epistemic
		w.sums[k].Skewness += b.Skewness
		w.sums[k].Predicted += b.Predicted
	}
}

// look finds the alarms. Logarithms are left to who reads Signals.
func (w *window) look() {
	w.full = true
	copy(w.looked, w.sums)
	for k, sum := range w.sums {
		within := w.shares[k]
		w.alarms[k] = Alarms{
			Epistemic: math.Abs(w.rank(sum.Epistemic).Z) > Alarm,
			Skewness:  math.Abs(w.rank(sum.Skewness).Z) > Alarm,
			Predicted: sum.Predicted < within.low || sum.Predicted > within.high,
		}
	}
}

// rank is the signal of a sum of ranks.
func (w *window) rank(sum float64) Signal {
	shift := sum/float64(w.inputs) - 0.5
	return Signal{Z: shift * w.of, Shift: shift}
}

// update finds the alarms over any window, and whether they are others than before.
func (m *Monitor) update() (changed bool) {
	for k, before := range m.alarms {
		var now Alarms
		for i := range m.windows {
			a := m.windows[i].alarms[k]
			now.Epistemic = now.Epistemic || a.Epistemic
			now.Skewness = now.Skewness || a.Skewness
			now.Predicted = now.Predicted || a.Predicted
		}
		m.alarms[k] = now
		changed = changed || now != before
	}
	return changed
}

// Alarms by class. They are overwritten by Add.
func (m *Monitor) Alarms() []Alarms { return m.alarms }

// Filled reports whether a window, by position in Windows, has its inputs.
func (m *Monitor) Filled(window int) bool { return m.windows[window].full }

// Signals of the classes over a window, by position in Windows, as it was when it
// was looked at last; 0 before it is filled.
func (m *Monitor) Signals(window int) []Signals {
	signals := make([]Signals, m.classes)
	w := &m.windows[window]
	if !w.full {
		return signals
	}
	n, size := float64(w.inputs), float64(m.reference.Inputs)
	for k, sum := range w.looked {
		share := m.reference.Classes[k].Predicted
		signals[k] = Signals{
			Epistemic: w.rank(sum.Epistemic), Skewness: w.rank(sum.Skewness),
			Predicted: Signal{shareZ(sum.Predicted, n, share*size, size), sum.Predicted/n - share},
		}
	}
	return signals
}

// SmallestVisible is the least |A - 1/2| that is an alarm over a window.
func SmallestVisible(window, reference int) float64 {
	return Alarm * standardError(window, reference)
}

// standardError of A.
func standardError(window, reference int) float64 {
	return math.Sqrt((1/float64(window) + 1/float64(reference)) / 12)
}

// sharesWithin is which counts of a window's inputs are no alarm beside a share of
// a reference: shareZ grows with the count.
func sharesWithin(inputs int, share, size float64) bounds {
	z := func(count int) float64 { return shareZ(float64(count), float64(inputs), share*size, size) }
	low := sort.Search(inputs+1, func(count int) bool { return z(count) >= -Alarm })
	high := sort.Search(inputs+1, func(count int) bool { return z(count) > Alarm }) - 1
	return bounds{float64(low), float64(high)}
}

// shareZ compares x of n live inputs with y of m, with x half a count nearer to what
// is expected, as counts are steps. Unlike the pooled z it keeps its tails where a
// share is small: of a class that the reference never predicted, two in 64 are no
// alarm.
func shareZ(x, n, y, m float64) float64 {
	pooled := (x + y) / (n + m)
	apart := x - n*pooled
	if math.Abs(apart) <= 0.5 {
		return 0
	}
	x -= math.Copysign(0.5, apart)
	pooled = (x + y) / (n + m)
	term := func(count, of, share float64) float64 {
		if count <= 0 {
			return 0
		}
		return count * math.Log(count/of/share)
	}
	ratio := term(x, n, pooled) + term(n-x, n, 1-pooled) + term(y, m, pooled) + term(m-y, m, 1-pooled)
	return math.Copysign(math.Sqrt(2*max(ratio, 0)), apart)
}
