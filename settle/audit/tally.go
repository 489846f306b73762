package audit

// Tally counts what became of the passes of inputs that might settle. It is for one
// goroutine at a time; shards have one each, which Add sums up.
type Tally struct {
	// Used are the inputs by passes used, from 0 to all of them: an audited input has
	// used all.
	Used []uint64
	// Saved is the passes that settled inputs did not need. Audited inputs need all: it
	// is net of audits.
	Saved uint64
	// Forgone is the passes that audited inputs would not have needed: what audits cost.
	Forgone uint64
	// Late is the passes that came for settled inputs nevertheless: computed, and so not
	// saved.
	Late uint64
}

// NewTally makes a Tally for inputs of so many passes.
func NewTally(passes int) *Tally { return &Tally{Used: make([]uint64, max(passes, 0)+1)} }

// Settled counts an input that was settled, and told so, after so many passes.
func (t *Tally) Settled(used int) {
	used = t.within(used)
	t.Used[used]++
	t.Saved += uint64(len(t.Used) - 1 - used)
}

// Full counts an input that nothing settled before its last pass.
func (t *Tally) Full() { t.Used[len(t.Used)-1]++ }

// Audited counts an input that was audited, and would have been settled after so many
// passes; all of them if it would not.
func (t *Tally) Audited(would int) {
	t.Full()
	t.Forgone += uint64(len(t.Used) - 1 - t.within(would))
}

// Add adds what another Tally, of inputs of as many passes, has counted.
func (t *Tally) Add(other *Tally) {
	for used, inputs := range other.Used {
		t.Used[t.within(used)] += inputs
	}
	t.Saved += other.Saved
	t.Forgone += other.Forgone
	t.Late += other.Late
}

// Factor is how many times the passes computed, late ones included, all inputs would have
// had without settling. It is 1 without inputs, and below 1 where more passes were late
// than saved, which they cannot be.
func (t *Tally) Factor() float64 {
	full, used := 0.0, float64(t.Late)
	for passes, inputs := range t.Used {
		full += float64(inputs) * float64(len(t.Used)-1)
		used += float64(inputs) * float64(passes)
	}
	if used == 0 {
		return 1
	}
	return full / used
}

func (t *Tally) within(passes int) int { return min(max(passes, 0), len(t.Used)-1) }
