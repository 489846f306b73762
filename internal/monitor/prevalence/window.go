package prevalence

import "math"

// Inputs is how many of the last inputs a Window holds at most.
const Inputs = Blocks * BlockInputs

// A Window forgets its oldest block of inputs when a new one begins.
const (
	Blocks      = 8
	BlockInputs = 5000
)

// Cells of odds: eight to each factor of 2, from 2^-24 to 2^24. Odds outside count as the nearest.
const (
	perOctave = 3 // bits
	octaves   = 24
	cells     = 2 * octaves << perOctave
	cellShift = 52 - perOctave
	firstCell = (1023 - octaves) << perOctave
)

// centres holds the middle of each cell, as a logarithm.
var centres = func() (c [cells]float64) {
	edge := func(cell int) float64 { return math.Log(math.Float64frombits(uint64(firstCell+cell) << cellShift)) }
	for cell := range c {
		c[cell] = (edge(cell) + edge(cell+1)) / 2
	}
	return c
}()

// Counts counts a few inputs by the odds of their priority.
type Counts struct {
	n     int
	cells [cells]uint16
}

// Most is how many inputs Counts hold at most.
const Most = 512

// Add counts an input, and reports whether the counts are full. The priority lies in [0,1], and must not
// be NaN.
func (c *Counts) Add(priority float64) (full bool) {
	cell := int(math.Float64bits(priority/(1-priority))>>cellShift) - firstCell
	c.cells[min(max(cell, 0), cells-1)]++
	c.n++
	return c.n == Most
}

// Window holds the counts of the last inputs. It is for one goroutine.
type Window struct {
	blocks [Blocks][cells]uint32
	sizes  [Blocks]int
	latest int // index of the block that is being filled
}

// Take moves counts into the window, and leaves them at 0.
func (w *Window) Take(c *Counts) {
	if c.n == 0 {
		return
	}
	if w.sizes[w.latest]+c.n > BlockInputs {
		w.latest = (w.latest + 1) % Blocks
		w.blocks[w.latest], w.sizes[w.latest] = [cells]uint32{}, 0
	}
	for cell, n := range c.cells {
		w.blocks[w.latest][cell] += uint32(n)
	}
	w.sizes[w.latest] += c.n
	*c = Counts{}
}
