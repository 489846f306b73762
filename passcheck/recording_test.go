package passcheck

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
)

// recorded holds passes as [pass][input*classes+class], with the true class of each input or nil.
type recorded struct {
	name            string
	inputs, classes int
	passes          [][]float32
	labels          []int
}

// readAll reads every recording of the project.
func readAll(t testing.TB) (all []*recorded) {
	t.Helper()
	files, err := filepath.Glob("../internal/recordings/*.passes.npy")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		p, err := record.ReadPasses(file, record.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &recorded{name: strings.TrimSuffix(filepath.Base(file), ".passes.npy"), inputs: p.N, classes: p.K}
		for s := range p.S {
			r.passes = append(r.passes, p.Float32[s*p.N*p.K:][:p.N*p.K])
		}
		if labels := strings.Replace(file, ".passes.", ".labels.", 1); r.name != "digits-ood" {
			if r.labels, err = record.ReadLabels(labels); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, r)
	}
	return all
}

// some returns some passes of some inputs, in any order and with repetitions.
func (r *recorded) some(passes, inputs []int) *recorded {
	chosen := &recorded{name: r.name, inputs: len(inputs), classes: r.classes}
	for _, s := range passes {
		values := make([]float32, 0, len(inputs)*r.classes)
		for _, i := range inputs {
			values = append(values, r.row(s, i)...)
		}
		chosen.passes = append(chosen.passes, values)
	}
	if r.labels != nil {
		chosen.labels = make([]int, len(inputs))
		for at, i := range inputs {
			chosen.labels[at] = r.labels[i]
		}
	}
	return chosen
}

func (r *recorded) row(s, i int) []float32 { return r.passes[s][i*r.classes:][:r.classes] }

// first returns the numbers below n.
func first(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// changed returns a copy of which each row was changed.
func (r *recorded) changed(change func(s, i int, row []float32)) *recorded {
	changed := r.some(first(len(r.passes)), first(r.inputs))
	for s := range changed.passes {
		for i := range changed.inputs {
			change(s, i, changed.row(s, i))
		}
	}
	return changed
}

// normalised scales a row to the sum 1.
func normalised(row []float32) {
	sum := float32(0)
	for _, v := range row {
		sum += v
	}
	for k := range row {
		row[k] /= sum
	}
}

// signs returns the names of the signs of a recording.
func (r *recorded) signs(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, s := range r.look(t) {
		names = append(names, s.Name)
	}
	return names
}

func (r *recorded) look(t testing.TB) []Sign {
	t.Helper()
	tensor := decomp.Tensor{Passes: len(r.passes), Inputs: r.inputs, Float32: slices.Concat(r.passes...)}
	inputs, err := Decompose(tensor, decomp.Spec{Classes: r.classes, SumTolerance: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	signs, groups := Passes(tensor, decomp.Probabilities, r.classes, inputs)
	if r.labels != nil {
		signs = append(signs, Labels(r.labels, inputs.Mean, r.classes, groups)...)
	}
	return signs
}

// roundings are what files and formats do to passes.
var roundings = []struct {
	name  string
	round func(row []float32)
}{
	{"float32", func([]float32) {}},
	{"float16", func(row []float32) { roundTo(row, func(v float32) float32 { return scaled(v, 11, -24) }) }},
	{"bfloat16", func(row []float32) { roundTo(row, func(v float32) float32 { return scaled(v, 8, -133) }) }},
	{"4 decimals", func(row []float32) {
		roundTo(row, func(v float32) float32 { return float32(math.Round(float64(v)*1e4) / 1e4) })
	}},
	{"hard votes", func(row []float32) {
		most := slices.Index(row, slices.Max(row))
		clear(row)
		row[most] = 1
	}},
}

func roundTo(row []float32, round func(float32) float32) {
	for k, v := range row {
		row[k] = round(v)
	}
}

// scaled rounds to bits of precision, and no finer than 2^least.
func scaled(v float32, bits, least int) float32 {
	if v == 0 {
		return 0
	}
	_, exp := math.Frexp(float64(v))
	unit := math.Ldexp(1, max(exp-bits, least))
	return float32(math.RoundToEven(float64(v)/unit) * unit)
}

// genuine are the forms in which a right recording comes.
func genuine(r *recorded, random *rand.Rand, see func(form string, r *recorded)) {
	n, s := r.inputs, len(r.passes)
	for _, rounding := range roundings {
		rounded := r.changed(func(_, _ int, row []float32) { rounding.round(row) })
		for _, passes := range []int{s, 2, 3, 5} {
			for _, inputs := range []int{n, 100, 20} {
				if passes > s || inputs == n && passes != s {
					continue
				}
				some := rounded.some(random.Perm(s)[:passes], random.Perm(n)[:inputs])
				see(fmt.Sprintf("%s, %d of %d passes, %d of %d inputs", rounding.name, passes, s, inputs, n), some)
			}
		}
	}
}

// broken are everyday ways to break a recording, with the sign that each must show.
var broken = []struct {
	name   string
	sign   string
	damage func(r *recorded, random *rand.Rand) *recorded
}{
	{"classes of one pass shifted", signForeignPasses, func(r *recorded, random *rand.Rand) *recorded {
		b, shift := random.IntN(len(r.passes)), 1+random.IntN(r.classes-1)
		return r.changed(func(s, _ int, row []float32) {
			if s == b {
				slices.Reverse(row[:shift])
				slices.Reverse(row[shift:])
				slices.Reverse(row)
			}
		})
	}},
	{"rows of one pass shuffled", signForeignPasses, func(r *recorded, random *rand.Rand) *recorded {
		b, order := random.IntN(len(r.passes)), random.Perm(r.inputs)
		return r.changed(func(s, i int, row []float32) {
			if s == b {
				copy(row, r.row(s, order[i]))
			}
		})
	}},
	{"rows of every pass shuffled", signForeignPasses, func(r *recorded, random *rand.Rand) *recorded {
		orders := make([][]int, len(r.passes))
		for s := range orders {
			orders[s] = random.Perm(r.inputs)
		}
		return r.changed(func(s, i int, row []float32) { copy(row, r.row(s, orders[s][i])) })
	}},
	{"one pass repeats another", signRepeatedPasses, func(r *recorded, random *rand.Rand) *recorded {
		passes := append(first(len(r.passes)), random.IntN(len(r.passes)))
		return r.some(passes, first(r.inputs))
	}},
	{"2 distinct passes, 10 times", signRepeatedPasses, func(r *recorded, _ *rand.Rand) *recorded {
		return r.some([]int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, first(r.inputs))
	}},
	{"3 distinct passes, with noise of 1e-6", signRepeatedPasses, func(r *recorded, random *rand.Rand) *recorded {
		return r.some([]int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1}, first(r.inputs)).changed(noise(1e-6, random))
	}},
	{"one pass the same for all inputs", signConstantPasses, func(r *recorded, random *rand.Rand) *recorded {
		b := random.IntN(len(r.passes))
		return r.changed(func(s, _ int, row []float32) {
			for k := range row {
				if s == b {
					row[k] = 1 / float32(len(row))
				}
			}
		})
	}},
	{"dropout off", DropoutOff, func(r *recorded, _ *rand.Rand) *recorded {
		return r.some(make([]int, 20), first(r.inputs))
	}},
	{"dropout off, noise of 1e-7", DropoutOff, func(r *recorded, random *rand.Rand) *recorded {
		return r.some(make([]int, 20), first(r.inputs)).changed(noise(1e-7, random))
	}},
	{"dropout off, noise of 1e-3", DropoutOff, func(r *recorded, random *rand.Rand) *recorded {
		return r.some(make([]int, 20), first(r.inputs)).changed(noise(1e-3, random))
	}},
	{"softmax twice", signSoftmaxTwice, func(r *recorded, _ *rand.Rand) *recorded {
		return r.changed(func(_, _ int, row []float32) {
			for k, v := range row {
				row[k] = float32(math.Exp(float64(v)))
			}
			normalised(row)
		})
	}},
	{"the rarer half of the classes five times", signEqualInputs, func(r *recorded, _ *rand.Rand) *recorded {
		inputs := first(r.inputs)
		for i, label := range r.labels {
			if 2*label >= r.classes {
				inputs = append(inputs, i, i, i, i)
			}
		}
		return r.some(first(len(r.passes)), inputs)
	}},
	{"labels of other inputs", ChanceLabels, func(r *recorded, random *rand.Rand) *recorded {
		to := r.some(first(len(r.passes)), first(r.inputs))
		random.Shuffle(len(to.labels), func(a, b int) { to.labels[a], to.labels[b] = to.labels[b], to.labels[a] })
		return to
	}},
	{"labels made from the predictions", signPerfectLabels, func(r *recorded, _ *rand.Rand) *recorded {
		changed := r.some(first(len(r.passes)), first(r.inputs))
		for i := range changed.labels {
			sum := make([]float64, r.classes)
			for s := range r.passes {
				for k, v := range r.row(s, i) {
					sum[k] += float64(v)
				}
			}
			changed.labels[i] = slices.Index(sum, slices.Max(sum))
		}
		return changed
	}},
}

// noise multiplies the odds of each class by 1 + size z, as rounding of logits does.
func noise(size float64, random *rand.Rand) func(_, _ int, row []float32) {
	return func(_, _ int, row []float32) {
		for k, v := range row {
			row[k] = v * float32(math.Exp(size*random.NormFloat64()))
		}
		normalised(row)
	}
}

// TestRecordings measures how many right recordings are suspected, and how many broken ones are found:
// whole, and as float16 with at most 5 passes of 300 inputs. With -v it prints the table of
// BENCHMARKS.md. A member whose classes were saved in another order, one pass recorded twenty
// times and labels of another file had each been certified without a word.
func TestRecordings(t *testing.T) {
	if testing.Short() {
		t.Skip("goes over all recordings")
	}
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	recordings := readAll(t)
	alarms, tried := 0, 0
	for _, r := range recordings {
		genuine(r, random, func(form string, some *recorded) {
			tried++
			if found := some.look(t); len(found) > 0 {
				alarms++
				t.Errorf("%s, %s: a right recording shows %+v", r.name, form, found)
			}
		})
	}
	t.Logf("| none | %d of %d suspected | |", alarms, tried)
	for _, b := range broken {
		tried, found, foundFew := 0, 0, 0
		for _, r := range recordings {
			if r.labels == nil && (b.sign == signEqualInputs || b.sign == ChanceLabels || b.sign == signPerfectLabels) {
				continue
			}
			tried++
			whole := b.damage(r, random).signs(t)
			if b.name == "rows of every pass shuffled" { // the labels fit none of the orders
				whole = slices.DeleteFunc(whole, func(n string) bool { return n == ChanceLabels })
			}
			if !slices.Equal(whole, []string{b.sign}) {
				t.Errorf("%s, %s: %v, want %s alone", r.name, b.name, whole, b.sign)
			} else {
				found++
			}
			few := r.some(random.Perm(len(r.passes))[:5], random.Perm(r.inputs)[:300])
			few = b.damage(few, random).changed(func(_, _ int, row []float32) { roundings[1].round(row) })
			if slices.Contains(few.signs(t), b.sign) {
				foundFew++
			}
		}
		t.Logf("| %s | %d of %d | %d of %d |", b.name, found, tried, foundFew, tried)
	}
}

// TestVotes checks that hard votes and few inputs are not taken for what they look like: the same rows in
// many inputs and passes by chance, and a member that votes for one class as the others nearly always do.
func TestVotes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := &recorded{name: "votes", inputs: 100, classes: 2, labels: make([]int, 100)}
		rare := make([]float64, r.inputs) // chance of the rare vote
		for i := range 6 {
			rare[i], r.labels[i] = 0.3, i%2
		}
		for range 12 {
			pass := make([]float32, 0, 2*r.inputs)
			for i := range r.inputs {
				vote := float32(0)
				if random.Float64() < rare[i] {
					vote = 1
				}
				pass = append(pass, 1-vote, vote)
			}
			r.passes = append(r.passes, pass)
		}
		if found := r.look(t); len(found) > 0 {
			t.Errorf("seed %d: %+v", seed, found)
		}
	}
}

// TestNoOpinion checks what is too small, or refused, to be looked at.
func TestNoOpinion(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for name, r := range map[string]*recorded{
		"one input": {inputs: 1, classes: 2, passes: [][]float32{{1, 0}, {1, 0}}, labels: []int{0}},
		"refused":   {inputs: 2, classes: 2, passes: [][]float32{{nan, nan, 2, 3}, {nan, nan, 1, 0}}, labels: []int{0, 1}},
	} {
		if found := r.look(t); len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestLayouts checks that a recording has the same signs in the other order of axes, as float64, and as
// logits.
func TestLayouts(t *testing.T) {
	t.Parallel()
	r := readAll(t)[1] // an ensemble of five, with copies
	r = broken[5].damage(r, rand.New(rand.NewPCG(1, 1)))
	s, n, k := len(r.passes), r.inputs, r.classes
	turned, logits := make([]float64, s*n*k), make([]float32, 0, s*n*k)
	for pass := range s {
		for i := range n {
			for c, v := range r.row(pass, i) {
				turned[(i*s+pass)*k+c] = float64(v)
				logits = append(logits, float32(math.Log(float64(v))))
			}
		}
	}
	want := r.look(t)
	for name, form := range map[string]struct {
		tensor decomp.Tensor
		kind   decomp.Kind
	}{
		"nsk":    {decomp.Tensor{Passes: s, Inputs: n, Layout: decomp.NSK, Float64: turned}, decomp.Probabilities},
		"logits": {decomp.Tensor{Passes: s, Inputs: n, Float32: logits}, decomp.Logits},
	} {
		inputs, err := Decompose(form.tensor, decomp.Spec{Classes: k, Kind: form.kind, SumTolerance: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := Passes(form.tensor, form.kind, k, inputs); len(want) != 1 || !slices.EqualFunc(got, want, func(a, b Sign) bool {
			return a.Name == b.Name && slices.Equal(a.Passes, b.Passes)
		}) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
