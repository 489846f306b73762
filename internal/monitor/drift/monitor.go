package drift

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/policy"
)

// BlockInputs is how many inputs are added at a time: an eighth of the smallest window.
const BlockInputs = 8

// Windows lists the windows, in inputs. Each is evaluated after every eighth of it.
var Windows = [...]int{64, 256, 1024}

// Alarm is the |z| above which a signal is an alarm.
//
// While a window is renewed once it is evaluated 8 times, which at so high a bar is as good as 5
// independent times. 10^6 inputs give some 10^5 evaluations of each signal of each class; a normal
// z exceeds 5.5 in one of 2.6 10^7, and that of ranks less often. docs/triage.md has the rate of
// false alarms that follows.
const Alarm = 5.5

// Block holds the sums over BlockInputs inputs for one class.
type Block struct {
	Epistemic, Skewness float64 // sums of Ranks.Of
	Predicted           float64 // inputs that predicted the class
}

// Signal says how far one quantity has moved over one window of W inputs.
type Signal struct {
	// Z is in standard errors: (A - 1/2)/sqrt((1/W + 1/m)/12), where A is the probability that a
	// live value exceeds one of the reference's m; it is positive if live values are larger. Ties
	// bring it closer to 0. For predicted shares it is the signed root of twice the log likelihood
	// ratio of separate shares against a common one, with the counts half a count closer to each
	// other.
	Z float64
	// Shift is A - 1/2, in [-1/2, 1/2]. For predicted shares it is the live share less that of the
	// reference.
	Shift float64
}

// Signals holds the signals of one class over one window.
type Signals struct{ Epistemic, Skewness, Predicted Signal }

// Alarms says which signals of one class are alarms, over any window.
type Alarms struct{ Epistemic, Skewness, Predicted bool }

// Monitor evaluates the windows of one model. It is for one goroutine at a time.
type Monitor struct {
	reference *policy.Reference
	classes   int
	ring      []Block // [blocks of the largest window][classes]
	added     int     // blocks ever added
	windows   [len(Windows)]window
	alarms    []Alarms
}

// window holds the sums over its last blocks, by class.
type window struct {
	inputs   int
	perShift float64  // standard errors per unit of shift
	shares   []bounds // range of predicted counts that raises no alarm
	sums     []Block  // at the last evaluation, by class
	alarms   []Alarms // state at the last evaluation
	full     bool     // it was evaluated at least once
}

// bounds is a range that includes both ends.
type bounds struct{ low, high float64 }

// NewMonitor returns a Monitor that compares live inputs with a reference.
func NewMonitor(r *policy.Reference) *Monitor {
	k, size := len(r.Classes), float64(r.Inputs)
	m := &Monitor{
		reference: r, classes: k,
		ring: make([]Block, Windows[len(Windows)-1]/BlockInputs*k), alarms: make([]Alarms, k),
	}
	for i, inputs := range Windows {
		w := &m.windows[i]
		*w = window{
			inputs: inputs, perShift: 1 / standardError(inputs, r.Inputs),
			sums: make([]Block, k), alarms: make([]Alarms, k),
		}
		for _, class := range r.Classes {
			w.shares = append(w.shares, sharesWithin(inputs, class.Predicted, size))
		}
	}
	return m
}

// Add adds a block with an element for each class of the reference. It reports whether Alarms
// changed.
func (m *Monitor) Add(block []Block) bool {
	copy(m.elements(m.added), block)
	m.added++
	looked := false
	for i := range m.windows {
		w := &m.windows[i]
		n := w.inputs / BlockInputs
		if m.added < n || m.added%(n/8) != 0 {
			continue
		}
		clear(w.sums)
		for b := m.added - n; b < m.added; b++ {
			for k, one := range m.elements(b) {
				sum := &w.sums[k]
				sum.Epistemic += one.Epistemic
				sum.Skewness += one.Skewness
				sum.Predicted += one.Predicted
			}
		}
		w.look()
		looked = true
	}
	return looked && m.update()
}

// elements returns the elements of a block in the ring.
func (m *Monitor) elements(block int) []Block {
	blocks := len(m.ring) / m.classes
	return m.ring[block%blocks*m.classes:][:m.classes]
}

// look evaluates the window for alarms. Logarithms are left to Signals.
func (w *window) look() {
	w.full = true
	for k, sum := range w.sums {
		within := w.shares[k]
		w.alarms[k] = Alarms{
			Epistemic: math.Abs(w.rank(sum.Epistemic).Z) > Alarm,
			Skewness:  math.Abs(w.rank(sum.Skewness).Z) > Alarm,
			Predicted: sum.Predicted < within.low || sum.Predicted > within.high,
		}
	}
}

// rank returns the signal of a sum of ranks.
func (w *window) rank(sum float64) Signal {
	shift := sum/float64(w.inputs) - 0.5
	return Signal{Z: shift * w.perShift, Shift: shift}
}

// update sets the alarms over any window, and reports whether they changed.
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

// Alarms returns the alarms by class. The next Add overwrites them.
func (m *Monitor) Alarms() []Alarms { return m.alarms }

// Filled reports whether a window, by its index in Windows, has had all its inputs.
func (m *Monitor) Filled(window int) bool { return m.windows[window].full }

// Signals returns the signals by class over a window, by its index in Windows, at its last
// evaluation. They are 0 until the window is filled.
func (m *Monitor) Signals(window int) []Signals {
	signals := make([]Signals, m.classes)
	w := &m.windows[window]
	if !w.full {
		return signals
	}
	n, size := float64(w.inputs), float64(m.reference.Inputs)
	for k, sum := range w.sums {
		share := m.reference.Classes[k].Predicted
		signals[k] = Signals{
			Epistemic: w.rank(sum.Epistemic), Skewness: w.rank(sum.Skewness),
			Predicted: Signal{shareZ(sum.Predicted, n, share*size, size), sum.Predicted/n - share},
		}
	}
	return signals
}

// SmallestVisible returns the smallest |A - 1/2| that is an alarm, for a window and a reference of
// the given numbers of inputs.
func SmallestVisible(window, reference int) float64 {
	return Alarm * standardError(window, reference)
}

// Describe says what live inputs are compared with, and which shift raises an alarm, for a reference of so
// many inputs.
func Describe(reference int) string {
	var windows, shifts []string
	for _, window := range Windows {
		windows = append(windows, thousands(window))
		shifts = append(shifts, fmt.Sprintf("%.2f", SmallestVisible(window, reference)))
	}
	last := len(windows) - 1
	return fmt.Sprintf("Drift: live C_k and skewness are compared with %s calibration inputs over windows of %s and %s; smallest shift "+
		"that alarms: %s (0.5 = completely different).", thousands(reference), strings.Join(windows[:last], ", "), windows[last], strings.Join(shifts, ", "))
}

// thousands returns a number with commas between thousands.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// standardError returns the standard error of A without drift: sqrt((1/W + 1/m)/12).
func standardError(window, reference int) float64 {
	return math.Sqrt((1/float64(window) + 1/float64(reference)) / 12)
}

// sharesWithin returns which counts of a window's inputs are no alarm beside a share of a
// reference. It relies on shareZ growing with the count.
func sharesWithin(inputs int, share, size float64) bounds {
	z := func(count int) float64 { return shareZ(float64(count), float64(inputs), share*size, size) }
	low := sort.Search(inputs+1, func(count int) bool { return z(count) >= -Alarm })
	high := sort.Search(inputs+1, func(count int) bool { return z(count) > Alarm }) - 1
	return bounds{float64(low), float64(high)}
}

// shareZ compares x of n live inputs with y of m, with x half a count closer to what is expected,
// because counts move in steps. Unlike the pooled z it keeps its tails if a share is small: two in
// 64 inputs of a class that the reference never predicted are no alarm.
func shareZ(x, n, y, m float64) float64 {
	pooled := (x + y) / (n + m)
	apart := x - n*pooled
	if math.Abs(apart) <= 0.5 {
		return 0
	}
	x -= math.Copysign(0.5, apart)
	pooled = (x + y) / (n + m)
	term := func(count, whole, share float64) float64 {
		if count <= 0 {
			return 0
		}
		return count * math.Log(count/whole/share)
	}
	ratio := term(x, n, pooled) + term(n-x, n, 1-pooled) + term(y, m, pooled) + term(m-y, m, 1-pooled)
	return math.Copysign(math.Sqrt(2*max(ratio, 0)), apart)
}
