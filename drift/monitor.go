package drift

import "math"

// BlockInputs is how many inputs are added at a time: an eighth of the smallest
// window.
const BlockInputs = 8

// Windows are the numbers of inputs that are looked back on. Each is looked at
// anew after an eighth of it.
var Windows = [...]int{64, 256, 1024}

// Alarm is the |z| above which a signal is one.
//
// A window of 1024 inputs is looked at 8 times while it is renewed, which is as if
// it were 3 to 4 independent looks; over 10^6 inputs of 32 classes, 3 signals and
// all windows that is about 10^7 looks, of which a normal z exceeds 5.5 in one of
// 2.6 10^7. Ranks have lighter tails than that.
const Alarm = 5.5

// Block is what some inputs, BlockInputs of them, say of one class.
type Block struct {
	Epistemic, Skewness float64 // sums of Quantiles.Below
	Predicted           float64 // how many had it predicted
}

// Signal is how far one thing has moved over one window, in standard errors.
type Signal struct {
	// Z is (A - 1/2)/sqrt((1/W + 1/m)/12), where A is the probability that a live
	// value exceeds one of the reference: above 0 where live values are larger. With
	// ties it is nearer to 0. Of predicted shares it is the signed root of twice the
	// log likelihood ratio of one share for both against one for each.
	Z float64
	// Shift is A - 1/2, in [-1/2, 1/2]; of predicted shares, live less reference.
	Shift float64
}

// Signals of one class over one window.
type Signals struct{ Epistemic, Skewness, Predicted Signal }

// Monitor looks at the windows of one model. It is for one goroutine at a time.
type Monitor struct {
	reference *Reference
	classes   int
	ring      []Block // [blocks of the largest window][classes]
	added     int     // blocks, ever
	windows   [len(Windows)]window
}

// window is the sums over the last blocks.
type window struct {
	sums    []Block // by class
	signals []Signals
	full    bool // signals are there
}

// NewMonitor makes a Monitor for live inputs beside a reference.
func NewMonitor(r *Reference) *Monitor {
	k := len(r.Classes)
	m := &Monitor{reference: r, classes: k, ring: make([]Block, Windows[len(Windows)-1]/BlockInputs*k)}
	for i := range m.windows {
		m.windows[i] = window{sums: make([]Block, k), signals: make([]Signals, k)}
	}
	return m
}

// Add adds a block: one of each class. It reports which windows, by position, were
// looked at.
func (m *Monitor) Add(block []Block) (looked [len(Windows)]bool) {
	blocks := len(m.ring) / m.classes
	for i := range m.windows {
		w, n := &m.windows[i], Windows[i]/BlockInputs
		if m.added >= n {
			for k, old := range m.at(m.added - n + blocks) {
				w.sums[k].Epistemic -= old.Epistemic
				w.sums[k].Skewness -= old.Skewness
				w.sums[k].Predicted -= old.Predicted
			}
		}
		for k, b := range block {
			w.sums[k].Epistemic += b.Epistemic
			w.sums[k].Skewness += b.Skewness
			w.sums[k].Predicted += b.Predicted
		}
	}
	copy(m.at(m.added), block)
	m.added++
	for i := range m.windows {
		w, n := &m.windows[i], Windows[i]/BlockInputs
		if m.added < n || m.added%(n/8) != 0 {
			continue
		}
		if m.added%blocks == 0 {
			m.sumAnew(i) // what rounding has left behind
		}
		m.look(w, Windows[i])
		looked[i] = true
	}
	return looked
}

// at is the place of a block in the ring.
func (m *Monitor) at(block int) []Block {
	blocks := len(m.ring) / m.classes
	return m.ring[block%blocks*m.classes:][:m.classes]
}

func (m *Monitor) sumAnew(i int) {
	w := &m.windows[i]
	clear(w.sums)
	for b := m.added - Windows[i]/BlockInputs; b < m.added; b++ {
		for k, block := range m.at(b) {
			w.sums[k].Epistemic += block.Epistemic
			w.sums[k].Skewness += block.Skewness
			w.sums[k].Predicted += block.Predicted
		}
	}
}

func (m *Monitor) look(w *window, inputs int) {
	n, size := float64(inputs), float64(m.reference.Inputs)
	of := 1 / math.Sqrt((1/n+1/size)/12)
	for k, sum := range w.sums {
		c, s := sum.Epistemic/n-0.5, sum.Skewness/n-0.5
		share := m.reference.Classes[k].Predicted
		w.signals[k] = Signals{
			Epistemic: Signal{c * of, c},
			Skewness:  Signal{s * of, s},
			Predicted: Signal{shareZ(sum.Predicted, n, share*size, size), sum.Predicted/n - share},
		}
	}
	w.full = true
}

// Signals of the classes over a window, by position in Windows; nil until it is
// full. They are overwritten by Add.
func (m *Monitor) Signals(window int) []Signals {
	if !m.windows[window].full {
		return nil
	}
	return m.windows[window].signals
}

// SmallestVisible is the least |A - 1/2| that is an alarm over a window.
func SmallestVisible(window, reference int) float64 {
	return Alarm * math.Sqrt((1/float64(window)+1/float64(reference))/12)
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
