package passcheck

import (
	"math"
	"math/bits"

	"github.com/ckd-project/ckd/decomp"
)

// Inputs holds what package decomp says of each input of a recording: Result.Spread, Result.Squashed,
// and Result.Mean at [i*K+k].
type Inputs struct {
	Spread   []float64
	Squashed []bool
	Mean     []float64
}

// Decompose returns what decomp says of the inputs of a recording. An input whose rows are refused is
// left as one without a prediction. It returns an error where the plan cannot compute the recording.
func Decompose(t decomp.Tensor, spec decomp.Spec) (Inputs, error) {
	inputs := Inputs{make([]float64, t.Inputs), make([]bool, t.Inputs), make([]float64, t.Inputs*spec.Classes)}
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return inputs, err
	}
	batch, r := plan.NewBatch(), plan.NewResult()
	if err := batch.Reset(t); err != nil {
		return inputs, err
	}
	for i := range t.Inputs {
		if batch.Result(i, r) == nil {
			inputs.Spread[i], inputs.Squashed[i] = r.Spread, r.Squashed
			copy(inputs.Mean[i*spec.Classes:], r.Mean)
		}
	}
	return inputs, nil
}

// Passes returns the signs that the passes of a recording show, without its labels, and the group of
// each input: the same for inputs that are copies of each other. Groups are nil where no two inputs are.
// It takes time proportional to S*N*K. Of Dirichlet rows it looks for copies alone.
func Passes(t decomp.Tensor, kind decomp.Kind, classes int, inputs Inputs) (signs []Sign, groups []int) {
	d := data{t, kind, classes}
	hashes, passHashes := d.hashes()
	if kind != decomp.Dirichlet && t.Passes > 1 {
		// Each of the first two brings about signs of those behind it.
		if twice, ok := softmaxTwice(inputs, classes); ok {
			signs = append(signs, twice)
		} else if off, ok := dropoutOff(inputs, classes); ok {
			signs = append(signs, off)
		} else {
			signs = d.compare(passHashes)
		}
	}
	groups, copied := d.copies(hashes)
	if sign, ok := equalInputs(copied, t.Inputs); ok {
		signs = append(signs, sign)
	}
	return signs, groups
}

// leastSpread is decomp's bound of many passes. Single inputs of few passes may lie below it by
// chance, but not half of a recording.
const leastSpread = 0.01

// dropoutOff looks for passes that hardly differ. It looks at the inputs where passes could show a
// difference in spite of rounding. Without such inputs, as of a very confident model, all inputs that are
// not one-hot must be alike; of one-hot rows alone, nothing is known.
func dropoutOff(inputs Inputs, classes int) (Sign, bool) {
	const runnerUp = 1e-3 // least mean of the second most probable class
	off, telling, tellingOff, soft, softOff := 0, 0, 0, 0, 0
	for i, spread := range inputs.Spread {
		isOff := index(spread < leastSpread)
		off += isOff
		mu := second(inputs.Mean[i*classes:][:classes])
		if mu > 0 {
			soft++
			softOff += isOff
		}
		if mu >= runnerUp {
			telling++
			tellingOff += isOff
		}
	}
	if telling > 0 && (2*tellingOff <= telling || telling < fewVarying) || telling == 0 && (softOff < soft || soft < fewInputs) {
		return Sign{}, false
	}
	n := len(inputs.Spread)
	return ofInputs(DropoutOff, off, n, "Dropout seems to be off: the passes of %d of the %d inputs are the same but for rounding, and sampled passes "+
		"differ in nearly all. Uncertainty is absent there, not zero: record the passes anew with dropout in training mode, or with members that differ.",
		off, n), true
}

// second returns the second largest mean of an input.
func second(mean []float64) float64 {
	first, second := 0., 0.
	for _, mu := range mean {
		switch {
		case mu > first:
			first, second = mu, first
		case mu > second:
			second = mu
		}
	}
	return second
}

// softmaxTwice looks for a recording that lies in the range of a softmax of probabilities. One input in
// a hundred may lie outside, and one that was refused is no evidence.
func softmaxTwice(in Inputs, classes int) (Sign, bool) {
	n, squashed := len(in.Squashed), 0
	for _, is := range in.Squashed {
		squashed += index(is)
	}
	if squashed < runLength(classes) || 100*squashed < 99*n {
		return Sign{}, false
	}
	least, largest := 1/(1+float64(classes-1)*math.E), math.E/(math.E+float64(classes-1))
	return ofInputs(signSoftmaxTwice, squashed, n, "Softmax seems to have been taken twice: all probabilities of %d of the %d inputs lie between %.3g and %.3g, "+
		"where a softmax of probabilities lies. Record what the model returns if it ends in a softmax, or its logits with --kind logits.", squashed, n,
		least, largest), true
}

// data reads the rows of a recording.
type data struct {
	decomp.Tensor
	kind    decomp.Kind
	classes int
}

// offset returns where the row of a pass and an input starts.
func (d *data) offset(s, i int) int {
	if d.Layout == decomp.NSK {
		return (i*d.Tensor.Passes + s) * d.classes
	}
	return (s*d.Inputs + i) * d.classes
}

// row writes a row to dst, as probabilities.
func (d *data) row(dst []float64, s, i int) {
	offset := d.offset(s, i)
	if d.Float64 != nil {
		copy(dst, d.Float64[offset:offset+d.classes])
	} else {
		for k, v := range d.Float32[offset : offset+d.classes] {
			dst[k] = float64(v)
		}
	}
	if d.kind != decomp.Logits {
		return
	}
	top, sum := math.Inf(-1), 0.
	for _, z := range dst {
		top = max(top, z)
	}
	for k, z := range dst {
		dst[k] = math.Exp(z - top)
		sum += dst[k]
	}
	for k := range dst {
		dst[k] /= sum
	}
}

// hash returns a hash of the bits of a row.
func (d *data) hash(s, i int) uint64 {
	offset, h := d.offset(s, i), uint64(hashSeed)
	if d.Float64 != nil {
		for _, v := range d.Float64[offset : offset+d.classes] {
			h = bits.RotateLeft64((h^math.Float64bits(v))*hashSeed, 31)
		}
		return mix(h, 0)
	}
	for _, v := range d.Float32[offset : offset+d.classes] {
		h = bits.RotateLeft64((h^uint64(math.Float32bits(v)))*hashSeed, 31)
	}
	return mix(h, 0)
}

// hashes returns a hash of each input over all passes, and of each pass over all inputs.
func (d *data) hashes() (inputs, passes []uint64) {
	inputs, passes = make([]uint64, d.Inputs), make([]uint64, d.Tensor.Passes)
	for s := range passes {
		for i := range inputs {
			h := d.hash(s, i)
			inputs[i], passes[s] = mix(inputs[i], h), mix(passes[s], h)
		}
	}
	return inputs, passes
}

const hashSeed = 0x9e3779b97f4a7c15

// mix adds a value to a hash, by the finalizer of SplitMix64: one bit changes half of the result.
func mix(h, v uint64) uint64 {
	h = (h ^ v) + hashSeed
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
