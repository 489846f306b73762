package record

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const ctg = "../recordings/ctg-ensemble.passes.npy"

func ExampleReadPasses() {
	passes, err := ReadPasses("../recordings/ctg-ensemble.passes.npy", Options{Layout: SNK})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(passes.Note())
	fmt.Printf("%.4f\n", passes.Row(nil, 0, 0))
	// Output:
	// read as 5 passes of 2126 inputs over 3 classes (float32, layout snk)
	// [0.0003 0.0258 0.9739]
}

// TestLayoutsAgree reads the same numbers in the other order of axes, under the other layout.
func TestLayoutsAgree(t *testing.T) {
	snk, err := ReadPasses(ctg, Options{Layout: SNK})
	if err != nil {
		t.Fatal(err)
	}
	a := &Array{Shape: []int{snk.N, snk.S, snk.K}, Float64: []float64{}}
	for n := range snk.N {
		for s := range snk.S {
			a.Float64 = snk.Row(a.Float64, s, n)
		}
	}
	nsk, err := NewPasses("x", a, Options{Layout: NSK})
	if err != nil {
		t.Fatal(err)
	}
	if nsk.S != snk.S || nsk.N != snk.N || nsk.K != snk.K {
		t.Fatalf("S, N, K = %d, %d, %d, want %d, %d, %d", nsk.S, nsk.N, nsk.K, snk.S, snk.N, snk.K)
	}
	for s := range snk.S {
		for n := range snk.N {
			if !slices.Equal(snk.Row(nil, s, n), nsk.Row(nil, s, n)) {
				t.Fatalf("pass %d, input %d differs", s, n)
			}
		}
	}
}

func TestNote(t *testing.T) {
	tests := []struct {
		shape []int
		opts  Options
		want  string
	}{
		{[]int{30, 2126, 3}, Options{}, "read as 30 passes of 2126 inputs over 3 classes (float64, layout snk)"},
		{[]int{2126, 30, 3}, Options{},
			"read as 2126 passes of 30 inputs over 3 classes (float64, layout snk); " +
				"if it is the other way round, say --layout nsk"},
		{[]int{2126, 30, 3}, Options{Layout: NSK}, "read as 30 passes of 2126 inputs over 3 classes (float64, layout nsk)"},
		{[]int{1, 2, 1}, Options{Layout: NSK},
			"read as 2 passes of 1 input over 1 class (float64, layout nsk); if it is the other way round, say --layout snk"},
		{[]int{4, 4, 2}, Options{}, "read as 4 passes of 4 inputs over 2 classes (float64, layout snk)"},
		{[]int{7, 3}, Options{Concentrations: true}, "read as concentrations of 7 inputs over 3 classes (float64)"},
		{[]int{7, 3}, Options{Concentrations: true, Layout: NSK},
			"read as concentrations of 7 inputs over 3 classes (float64)"},
		{[]int{7, 1, 3}, Options{Concentrations: true, Layout: NSK},
			"read as concentrations of 7 inputs over 3 classes (float64)"},
	}
	for _, tt := range tests {
		n, _ := elements(tt.shape)
		p, err := NewPasses("x", &Array{Shape: tt.shape, Float64: make([]float64, n)}, tt.opts)
		if err != nil {
			t.Error(err)
		} else if got := p.Note(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestPassesErrors(t *testing.T) {
	tests := []struct {
		shape []int
		ints  bool
		opts  Options
		want  string
	}{
		{[]int{2, 3}, false, Options{}, "x.npy: shape (2, 3) has 2 axes: expected 3 axes, [S,N,K]"},
		{[]int{2, 3}, false, Options{Layout: NSK}, "expected 3 axes, [N,S,K]"},
		{[]int{2, 3, 1, 1}, false, Options{Concentrations: true}, "has 4 axes: expected 2 axes, [N,K], or 3 axes, [S,N,K]"},
		{[]int{6}, false, Options{}, "shape (6,) has 1 axes"},
		{[]int{1, 2, 3}, true, Options{}, "holds integers or text: passes are floats (f2, f4 or f8)"},
		{[]int{5, 0, 3}, false, Options{}, "shape (5, 0, 3) is empty: expected at least one pass, input and class"},
		{[]int{2, 4, 3}, false, Options{Concentrations: true},
			"has 2 rows an input: concentrations are exactly one row each"},
		{[]int{2, 4, 3}, false, Options{Concentrations: true, Layout: NSK}, "in layout nsk has 4 rows an input"},
	}
	for _, tt := range tests {
		n, _ := elements(tt.shape)
		a := &Array{Shape: tt.shape, Float64: make([]float64, n)}
		if tt.ints {
			a.Float64, a.Int64 = nil, make([]int64, n)
		}
		path := writeTemp(t, "x.npy", written(t, a))
		_, err := ReadPasses(path, tt.opts)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

// permuted moves the axes of an array: axis i of the result is axis order[i] of a, as numpy's
// transpose does.
func permuted(a *Array, order [3]int) *Array {
	var source, out [3]int
	copy(source[:], a.Shape)
	for i, axis := range order {
		out[i] = source[axis]
	}
	b := &Array{Shape: out[:], Float64: make([]float64, 0, len(a.Float64))}
	for i := range out[0] {
		for j := range out[1] {
			for k := range out[2] {
				var at [3]int
				at[order[0]], at[order[1]], at[order[2]] = i, j, k
				b.Float64 = append(b.Float64, a.Float64[(at[0]*source[1]+at[1])*source[2]+at[2]])
			}
		}
	}
	return b
}

func TestCheckRowsMessages(t *testing.T) {
	p, err := ReadPasses(ctg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mapped := func(f func(v float64) float64) *Array {
		a := &Array{Shape: []int{p.S, p.N, p.K}, Float64: []float64{}}
		for _, v := range p.Float32 {
			a.Float64 = append(a.Float64, f(float64(v)))
		}
		return a
	}
	a := mapped(func(v float64) float64 { return v })
	logits := mapped(func(v float64) float64 { return math.Log(v + 1e-9) })
	percent := mapped(func(v float64) float64 { return math.Round(v*1000) / 10 })
	nan := &Array{Shape: []int{1, 1, 2}, Float64: []float64{math.NaN(), 1}}
	spoilt := permuted(a, [3]int{0, 2, 1})
	spoilt.Float64[0] = math.NaN()
	late := &Array{Shape: []int{1, 3, 2}, Float64: []float64{0, 1, 1, 2, 3, 1}}
	both := &Array{Shape: []int{2, 2, 3}, Float64: []float64{.3, .5, .9, .7, .5, .1, .7, .5, .1, .3, .5, .9}}
	tests := []struct {
		name   string
		a      *Array
		layout Layout
		want   []string
	}{
		{"SKN", permuted(a, [3]int{0, 2, 1}), SNK, []string{
			"x.npy: rows along the last axis (size 2126) do not sum to 1 (a[0,0,:] sums to ",
			"but along axis 1 (size 3) they do: the array looks like [S,K,N]; " +
				"transpose it to [S,N,K] (numpy: a.transpose(0,2,1))"}},
		{"KSN", permuted(a, [3]int{2, 0, 1}), SNK, []string{
			"along axis 0 (size 3) they do: the array looks like [K,S,N]; transpose it to [S,N,K] (numpy: a.transpose(1,2,0))"}},
		{"NKS", permuted(a, [3]int{1, 2, 0}), NSK, []string{
			"the array looks like [N,K,S]; transpose it to [N,S,K] (numpy: a.transpose(0,2,1))"}},
		{"KNS", permuted(a, [3]int{2, 1, 0}), NSK, []string{
			"the array looks like [K,N,S]; transpose it to [N,S,K] (numpy: a.transpose(1,2,0))"}},
		{"logits", logits, SNK, []string{"rows along the last axis (size 3) do not sum to 1",
			"nor do they along another axis", "log-probabilities? declare kind logits"}},
		{"percentages", percent, SNK, []string{"(a[0,0,:] sums to 100)", "percentages? divide by 100"}},
		{"SKN and a NaN", spoilt, SNK, []string{"a[0,0,:] sums to NaN", "the array looks like [S,K,N]"}},
		{"first wrong row", late, SNK, []string{"a[0,1,:] sums to 3)"}},
		{"nan", nan, SNK, []string{"a[0,0,:] sums to NaN", "look for overflow"}},
		{"two candidates", both, SNK, []string{"looks like [S,K,N]", "; or along axis 0", "looks like [K,S,N]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewPasses("x.npy", tt.a, Options{Layout: tt.layout})
			if err != nil {
				t.Fatal(err)
			}
			err = p.CheckRows(1e-3)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
		})
	}
}

// TestRoundedRows takes a real recording in the precisions in which models and files hold it. It was told
// to say --kind logits, and everything was retained then. The tolerance that is advised accepts every row.
func TestRoundedRows(t *testing.T) {
	truncated := func(bits int) func(v float64) float64 {
		return func(v float64) float64 {
			return float64(math.Float32frombits(math.Float32bits(float32(v)) >> bits << bits))
		}
	}
	for name, round := range map[string]func(v float64) float64{
		"bfloat16":   truncated(16),
		"2 decimals": func(v float64) float64 { return math.Round(100*v) / 100 },
		"3 decimals": func(v float64) float64 { return math.Trunc(1000*v) / 1000 },
		"1 decimal":  func(v float64) float64 { return math.Round(10*v) / 10 },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ReadPasses(ctg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range p.Float32 {
				p.Float32[i] = float32(round(float64(v)))
			}
			advice := p.seen().Advice()
			if !strings.HasPrefix(advice, "rounded? send float32") {
				t.Fatal(advice)
			}
			_, advised, found := strings.Cut(advice, "set sum_tolerance (--sum-tolerance) to ")
			if name == "1 decimal" {
				if found {
					t.Errorf("%s: a tolerance that no policy accepts", advice)
				}
				return
			}
			tolerance, parseErr := strconv.ParseFloat(advised, 64)
			if parseErr != nil {
				t.Fatal(err)
			}
			if all := p.sumAxis(2, tolerance); all.wrong > 0 {
				t.Errorf("%s: then %d rows are still wrong", advice, all.wrong)
			}
		})
	}
}

// TestOneColumn takes sigmoids and logits of one class, which were told to say --kind logits.
func TestOneColumn(t *testing.T) {
	for _, c := range []struct {
		shape  []int
		values []float64
		want   string
	}{
		{[]int{2, 2}, []float64{.1, .9, .3, 1}, "sigmoids? give both classes: np.stack([1-a, a], axis=-1)"},
		{[]int{2, 2, 1}, []float64{.1, .9, .3, 1}, "sigmoids? give both classes: np.concatenate([1-a, a], axis=-1)"},
		{[]int{2, 2, 1}, []float64{1, 1, 1, 1}, "sigmoids? give both classes: np.concatenate([1-a, a], axis=-1)"},
		{[]int{2, 2}, []float64{-1, 2, .3, .8}, "with kind logits: np.stack([np.zeros_like(a), a], axis=-1)"},
		{[]int{2, 2, 1}, []float64{-1, 2, .3, .8}, "with kind logits: np.concatenate([np.zeros_like(a), a], axis=-1)"},
		{[]int{2, 2}, []float64{.1, .9, .3, .7}, "a single pass, or the mean of the passes?"},
		{[]int{1, 2, 1, 2, 2}, make([]float64, 8), "(numpy: a.squeeze())"},
	} {
		p, err := NewPasses("x.npy", &Array{Shape: c.shape, Float64: c.values}, Options{})
		if err == nil {
			err = p.CheckRows(1e-3)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.shape, err, c.want)
		}
	}
}

// TestCheckLogits takes arrays that are surely no logits, whose softmax is wrong without a word, and some
// that are or may be.
func TestCheckLogits(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   string // of the error; empty: accepted
	}{
		"sigmoids":             {[]float64{.9, .8, .1, .2, .1, .05, .7, .7, .7}, "rows [1-p, p]"},
		"votes":                {[]float64{7, 3, 0, 2, 8, 0, 1, 1, 8}, "divide each row by its sum"},
		"percentages":          {[]float64{99.5, .4, 0, 20, 80, 0, 1, 98.7, .5}, "divide by 100"},
		"coarse probabilities": {[]float64{.9, 0, 0, .3, .3, .4, .3, .3, .3}, "rounded? send float32"},
		"probabilities":        {[]float64{.9, .1, 0, .3, .3, .4, .3, .4, .3}, ""}, // each input is refused by itself
		"whole logits":         {[]float64{7, 3, 0, 2, 4, 0, 1, 1, 8}, ""},
		"logits":               {[]float64{.9, .8, .1, .2, .1, .05, .7, .7, -2}, ""},
		"one column":           {nil, "sigmoids? give both"},
	} {
		a := &Array{Shape: []int{1, 3, 3}, Float64: c.values}
		if c.values == nil {
			a = &Array{Shape: []int{1, 2, 1}, Float64: []float64{.5, .25}}
		}
		p, err := NewPasses("x.npy", a, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err = p.CheckLogits(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLooksSwapped reads every recording with its axes swapped, which gave answers about passes in
// place of inputs without a word. Read as they are, none is doubted.
func TestLooksSwapped(t *testing.T) {
	paths, err := filepath.Glob("../recordings/*.passes.npy")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		for layout, want := range map[Layout]bool{SNK: false, NSK: true} {
			p, err := ReadPasses(path, Options{Layout: layout})
			if err != nil {
				t.Fatal(err)
			}
			if says := strings.Contains(p.Note(), "differs more"); says != want {
				t.Errorf("%s as %v: %s", path, layout, p.Note())
			}
		}
	}
}

// TestCheckRowsFewWrong has fewer than half of the rows wrong, which must be accepted. The wrong
// rows lie together, where a sample from one end alone would see nothing else.
func TestCheckRowsFewWrong(t *testing.T) {
	p, err := ReadPasses(ctg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows := p.S * p.N
	for i := range rows * 2 / 5 * p.K {
		p.Float32[i] = 2
	}
	if err := p.CheckRows(1e-3); err != nil {
		t.Errorf("two fifths wrong: %v", err)
	}
	for i := range rows * 3 / 5 * p.K {
		p.Float32[i] = 2
	}
	if err := p.CheckRows(1e-3); err == nil {
		t.Error("three fifths wrong: want an error")
	}
	p.Concentrations = true
	if err := p.CheckRows(1e-3); err != nil {
		t.Errorf("concentrations need not sum to 1: %v", err)
	}
}

func TestLabels(t *testing.T) {
	half := []byte{0x00, 0x3c, 0x00, 0x40} // 1 and 2
	for name, file := range map[string][]byte{
		"u1": labelsFile(1, 2), "i2": npyFile(dict("<i2", "(2,)"), 1, 0, 2, 0), "f2": npyFile(dict("<f2", "(2,)"), half...),
		"f8": npyFile(dict(">f8", "(2,)"), 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0),
	} {
		if got, err := ReadLabels(writeTemp(t, "x.npy", file)); err != nil || !slices.Equal(got, []int{1, 2}) {
			t.Errorf("%s: got %v, %v, want [1 2]", name, got, err)
		}
	}
	path := writeTemp(t, "run.npz", npzFile(0, member{"labels.npy", labelsFile(3)}, member{"passes.npy", nil}))
	names := written(t, &Array{Shape: []int{3}, Text: []string{"c", "a", "b"}})
	for _, file := range [][]byte{names, npzFile(0, member{"y.npy", names})} {
		got, err := ReadClassLabels(writeTemp(t, "x", file), letter, anyNumber)
		if err != nil || !slices.Equal(got, []int{2, 0, 1}) {
			t.Errorf("names: got %v, %v, want [2 0 1]", got, err)
		}
	}
	if got, err := ReadLabels(path + ":labels"); err != nil || !slices.Equal(got, []int{3}) {
		t.Errorf("member: got %v, %v, want [3]", got, err)
	}
}

func anyNumber(int) error { return nil }

func notSeven(label int) error {
	if label == 7 {
		return errors.New("it means two classes")
	}
	return nil
}

// letter returns the numbers of the classes a, b and c.
func letter(name string) (int, error) {
	if i := strings.Index("abc", name); i >= 0 {
		return i, nil
	}
	return 0, errors.New("no such class")
}

func TestLabelErrors(t *testing.T) {
	floats := func(v float64) *Array { return &Array{Shape: []int{2}, Float64: []float64{0, v}} }
	tests := []struct {
		a    *Array
		want string
	}{
		{&Array{Shape: []int{3}, Int64: []int64{0, 1, -1}}, "label 2 is -1: expected the number of a class"},
		{&Array{Shape: []int{1}, Int64: []int64{1 << 31}}, "label 0 is 2147483648"},
		{&Array{Shape: []int{3}, Int64: []int64{1, 7, 7}}, "label 1 is 7: it means two classes"},
		{floats(7), "label 1 is 7: it means two classes"},
		{&Array{Shape: []int{1}, Float32: []float32{0.5}}, "label 0 is 0.5"},
		{floats(math.NaN()), "label 1 is NaN"},
		{floats(math.Inf(1)), "label 1 is +Inf"},
		{floats(-1), "label 1 is -1"},
		{floats(1e300), "label 1 is 1e+300"},
		{&Array{Shape: []int{}, Int64: []int64{0}}, "shape () has 0 axes: expected one, with a label for each input"},
		{&Array{Shape: []int{2, 3}, Int64: make([]int64, 6)}, "shape (2, 3) has 2 axes: expected one, with a label for each input (one-hot rows?"},
		{&Array{Shape: []int{1, 2, 3}, Int64: make([]int64, 6)}, "shape (1, 2, 3) has 3 axes"},
		{&Array{Shape: []int{2}, Text: []string{"a", "sick"}}, `label 1 is "sick": no such class`},
		{&Array{Shape: []int{2, 1}, Text: []string{"a", "b"}}, "shape (2, 1) has 2 axes"},
	}
	for _, tt := range tests {
		path := writeTemp(t, "labels.npy", written(t, tt.a))
		_, err := ReadClassLabels(path, letter, notSeven)
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	if _, err := ReadLabels(filepath.Join(t.TempDir(), "none.npy")); err == nil {
		t.Error("want an error for a file that is not there")
	}
}
