package kernel

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// versions lists the variants that this processor has.
func versions() []variant {
	var all []variant
	for v := scalar; v <= best(); v++ {
		all = append(all, v)
	}
	return all
}

// runVariant runs f on a version.
func runVariant(v variant, f func()) {
	defer func(was variant) { version = was }(version)
	version = v
	f()
}

// columns lists ways to fill a column with values in [0,1].
var columns = map[string]func(r *rand.Rand, column []float64){
	"softmax": func(r *rand.Rand, c []float64) {
		for i := range c {
			e := math.Exp(3 * r.NormFloat64())
			c[i] = e / (e + 1)
		}
	},
	"zero": func(_ *rand.Rand, c []float64) { fill(c, 0) },
	"one":  func(_ *rand.Rand, c []float64) { fill(c, 1) },
	"zeros and ones": func(r *rand.Rand, c []float64) {
		for i := range c {
			c[i] = float64(r.IntN(2))
		}
	},
	"denormal": func(r *rand.Rand, c []float64) {
		for i := range c {
			c[i] = float64(math.Float32frombits(r.Uint32N(1 << r.UintN(24))))
			if r.IntN(2) == 0 {
				c[i] = math.Float64frombits(r.Uint64N(1 << r.UintN(53)))
			}
		}
	},
	"equal": func(r *rand.Rand, c []float64) { fill(c, r.Float64()) },
	"neighbours": func(r *rand.Rand, c []float64) {
		p := r.Float32()
		for i := range c {
			c[i] = float64(math.Float32frombits(math.Float32bits(p) + r.Uint32N(2)))
			if r.IntN(2) == 0 {
				c[i] = math.Nextafter(c[i], 0)
			}
		}
	},
	// Two values have a ratio to their mean just where the step of the logarithm changes, or just
	// beside.
	"steps": func(r *rand.Rand, c []float64) {
		edge := math.Ldexp(1+float64(r.IntN(logSteps))/logSteps, -r.IntN(4)) / shift
		if edge > 1 {
			edge = 2 - edge
		}
		mean := math.Ldexp(1+float64(r.IntN(2)), -2)
		for i := range c {
			c[i] = mean * (1 + (edge-1)*float64(1-i%2*2))
			for range r.IntN(3) {
				c[i] = math.Nextafter(c[i], float64(r.IntN(2)))
			}
		}
	},
	"next to 1": func(r *rand.Rand, c []float64) {
		for i := range c {
			c[i] = 1 - 0x1p-24*float64(r.IntN(3))
		}
	},
	"tiny": func(r *rand.Rand, c []float64) {
		for i := range c {
			c[i] = math.Ldexp(r.Float64(), -r.IntN(1080))
		}
	},
	"small": func(r *rand.Rand, c []float64) {
		for i := range c {
			c[i] = 1e-6 * r.Float64()
		}
	},
	"one apart": func(r *rand.Rand, c []float64) {
		fill(c, r.Float64())
		c[r.IntN(len(c))] = r.Float64()
	},
}

// kinds lists the names of columns.
var kinds = slices.Sorted(maps.Keys(columns))

func fill(c []float64, p float64) {
	for i := range c {
		c[i] = p
	}
}

// panel returns rows of width columns, each filled in one way. NaN lies between the rows.
func panel[T float](r *rand.Rand, kind func() string, passes, width, stride int) []T {
	data := make([]T, (passes-1)*stride+width)
	for i := range data {
		data[i] = T(math.NaN())
	}
	column := make([]float64, passes)
	for j := range width {
		columns[kind()](r, column)
		for pass, p := range column {
			data[pass*stride+j] = T(p)
		}
	}
	return data
}

func TestVersionsAgree(t *testing.T) {
	t.Run("float32", rapid.MakeCheck(versionsAgree[float32]))
	t.Run("float64", rapid.MakeCheck(versionsAgree[float64]))
}

func versionsAgree[T float](t *rapid.T) {
	width := rapid.OneOf(rapid.IntRange(1, 40), rapid.SampledFrom([]int{63, 64, 65, 100, 257})).Draw(t, "width")
	passes := rapid.IntRange(2, 70).Draw(t, "passes")
	stride := width + rapid.IntRange(0, 9).Draw(t, "gap")
	only := rapid.SampledFrom(append([]string{""}, kinds...)).Draw(t, "kind")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	data := panel[T](r, func() string {
		if only != "" {
			return only
		}
		return kinds[r.IntN(len(kinds))]
	}, passes, width, stride)

	var want []float64
	for _, v := range versions() {
		var got []float64
		runVariant(v, func() { got = everything(data, passes, width, stride) })
		if v == scalar {
			want = got
		}
		for i := range want {
			if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
				t.Fatalf("%v: number %d is %v (%x), scalar %v (%x)",
					v, i, got[i], math.Float64bits(got[i]), want[i], math.Float64bits(want[i]))
			}
		}
	}
}

// TestColumnsAgain checks that one Columns can be used for panels of any number of passes.
func TestColumnsAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, v := range versions() {
		runVariant(v, func() {
			again := NewColumns(20)
			for _, passes := range []int{3, 50, 2, 400, 30} {
				data := panel[float32](r, func() string { return "softmax" }, passes, 20, 20)
				once := NewColumns(20)
				Moments(once, data, passes, 20, 20, 1)
				Moments(again, data, passes, 20, 20, 1)
				for j := range 20 {
					if again.M[j] != once.M[j] || again.Mean[j] != once.Mean[j] {
						t.Fatalf("%v, %d passes: column %d differs when done again", v, passes, j)
					}
				}
			}
		})
	}
}

// TestAllocations checks that computing allocates nothing once there is room for the passes.
func TestAllocations(t *testing.T) {
	data := make([]float32, 30*20)
	for _, v := range versions() {
		runVariant(v, func() {
			c := NewColumns(20)
			if n := testing.AllocsPerRun(10, func() { Moments(c, data, 30, 20, 20, 29) }); n != 0 {
				t.Errorf("%v: %v allocations", v, n)
			}
		})
	}
}

// everything returns all numbers that this package computes of a panel.
func everything[T float](data []T, passes, width, stride int) []float64 {
	var all []float64
	c := NewColumns(width)
	Moments(c, data, passes, width, stride, float64(passes-1))
	for _, f := range [...][]float64{c.Mean, c.Variance, c.ThirdMoment, c.C, c.Skewness, c.M, c.MeanLogMean} {
		all = append(all, f...)
	}

	// The parts are of one input, and of several with some columns left out.
	for _, inputs := range []int{1, 2, 5} {
		classes := width / inputs
		part := Part[T]{data, c.Mean, passes, stride, inputs, classes, classes - classes/3*(inputs%2)}
		d := make([]float64, passes*inputs*(classes+1))
		Deviations(d, classes+1, part)
		all = append(all, d...)
		for _, n := range []int{1, 2, 8, 15} {
			sums, fixed := make([]float64, inputs*n*(classes+1)), make([]float64, passes*inputs*(n+1))
			for i := range sums {
				sums[i] = float64(i)
			}
			for i := range fixed {
				fixed[i] = float64(data[i%width]) - float64(i)/7
			}
			Crossed(sums, classes+1, part, fixed, n+1, n, n == 2)
			all = append(all, sums...)
		}
	}
	for classes := 2; classes <= MaxRotated; classes++ {
		sums := make([]float64, classes/2*(width+3))
		Rotated(sums, width+3, data, passes, width/classes, classes, stride, c.Mean)
		all = append(all, sums...)
	}
	return all
}

// TestPairs compares the sums of Rotated and Crossed with their formulas.
func TestPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const passes, stride, apart = 5, 45, 50
	data, mean := make([]float64, passes*stride), make([]float64, stride)
	for i := range data {
		data[i] = r.Float64()
	}
	for j := range mean {
		mean[j] = r.Float64()
	}
	product := func(a, b int) float64 {
		sum := 0.0
		for pass := range passes {
			sum += (data[pass*stride+a] - mean[a]) * (data[pass*stride+b] - mean[b])
		}
		return sum
	}
	for _, v := range versions() {
		runVariant(v, func() {
			for classes := 2; classes <= MaxRotated; classes++ {
				sums := make([]float64, 3*apart)
				for inputs := range stride/classes + 1 {
					Rotated(sums, apart, data, passes, inputs, classes, stride, mean)
					for column := range inputs * classes {
						for turn := 1; turn <= classes/2; turn++ {
							other := column/classes*classes + (column%classes+turn)%classes
							if got := sums[(turn-1)*apart+column]; math.Abs(got-product(column, other)) > 1e-15 {
								t.Fatalf("%v: %d classes, %d inputs, column %d turned by %d: %v, want %v", v, classes, inputs, column, turn, got, product(column, other))
							}
						}
					}
				}
			}
			for n := range 32 {
				inputs := 1 + n%4
				classes := stride / inputs
				part := Part[float64]{data, mean, passes, stride, inputs, classes, min(n, classes)}
				fixed, sums := make([]float64, inputs*passes*apart), make([]float64, inputs*n*apart)
				fill(fixed, 9)
				fill(sums, 9)
				Deviations(fixed, apart, part)
				for at, got := range fixed {
					i, s, j, want := at/apart/passes, at/apart%passes, at%apart, 9.
					if j < part.Width {
						want = data[s*stride+i*classes+j] - mean[i*classes+j]
					}
					if got != want {
						t.Fatalf("%v: input %d of %d, pass %d, deviation %d of %d: %v, want %v", v, i, inputs, s, j, part.Width, got, want)
					}
				}
				fixedClasses := part.Width
				part.Width = classes - n%3
				Crossed(sums, apart, part, fixed, apart, n, n%2 == 0)
				for at, got := range sums {
					i, f, j, want := at/apart/n, at/apart%n, at%apart, 9.
					if f >= fixedClasses {
						continue
					}
					if j < part.Width {
						want = float64(9*(n%2)) + product(i*classes+f, i*classes+j)
					}
					if math.Abs(got-want) > 1e-14 {
						t.Fatalf("%v: input %d of %d, %d of %d fixed and column %d: %v, want %v", v, i, inputs, f, n, j, got, want)
					}
				}
			}
		})
	}
}

// TestPanelsExceed checks that the functions panic for a panel that exceeds its slice.
func TestPanelsExceed(t *testing.T) {
	short := make([]float64, 9)
	part := func(inputs int, mean []float64) Part[float64] { return Part[float64]{short, mean, 2, 4, inputs, 2, 2} }
	for name, f := range map[string]func(){
		"data of moments":    func() { Moments(NewColumns(5), short, 2, 5, 5, 1) },
		"width over stride":  func() { Moments(NewColumns(3), short, 2, 3, 2, 1) },
		"columns of moments": func() { Moments(NewColumns(0), short, 2, 1, 1, 1) },
		"sums of rotated":    func() { Rotated(make([]float64, 3), 4, short, 2, 1, 4, 4, short) },
		"classes of rotated": func() { Rotated(make([]float64, 99), 9, make([]float64, 99), 2, 1, 8, 8, short) },
		"dst of deviations":  func() { Deviations(make([]float64, 13), 4, part(2, short)) },
		"mean of deviations": func() { Deviations(make([]float64, 99), 4, part(2, make([]float64, 3))) },
		"inputs":             func() { Deviations(make([]float64, 99), 4, part(3, short)) },
		"sums of crossed":    func() { Crossed(make([]float64, 13), 4, part(2, short), short, 2, 2, true) },
		"fixed of crossed":   func() { Crossed(make([]float64, 99), 4, part(2, short), make([]float64, 7), 2, 2, true) },
		"mean of crossed":    func() { Crossed(make([]float64, 99), 4, part(2, make([]float64, 3)), short, 2, 2, true) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range versions() {
				runVariant(v, func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%v: no panic", v)
						}
					}()
					f()
				})
			}
		})
	}
}

func TestMomentsAgainstReference(t *testing.T) {
	t.Run("float32", func(t *testing.T) { againstReference[float32](t) })
	t.Run("float64", func(t *testing.T) { againstReference[float64](t) })
}

// againstReference compares with sums of 400 bits and math.Log, to the tolerances that Moments
// states.
func againstReference[T float](t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range versions() {
		for _, kind := range kinds {
			for _, passes := range []int{2, 3, 30, 50, 1000} {
				const width = 24
				data := panel[T](r, func() string { return kind }, passes, width, width)
				c := NewColumns(width)
				runVariant(v, func() { Moments(c, data, passes, width, width, float64(passes-1)) })
				for j := 0; j < width; j += max(1, passes/200) { // sums of 400 bits are slow
					column := make([]float64, passes)
					for pass := range column {
						column[pass] = float64(data[pass*width+j])
					}
					want := reference(column)
					if want.mean != 0 && want.mean < 1e-90 {
						continue // squares and cubes are not normal numbers
					}
					for _, f := range []struct {
						name              string
						got, want, within float64
					}{
						{"Mean", c.Mean[j], want.mean, (1e-15 + 1e-16*float64(passes)) * want.mean},
						{"Variance", c.Variance[j], want.variance, 1e-12 * want.variance},
						{"ThirdMoment", c.ThirdMoment[j], want.third, 1e-12 * want.thirdSize},
						{"C", c.C[j], want.c(), 1e-12 * want.c()},
						{"Skewness", c.Skewness[j], want.skewness, 2e-12 * want.skewnessSize},
						{"M", c.M[j], want.m, 1e-12 * want.m},
						{"MeanLogMean", c.MeanLogMean[j], xlogx(c.Mean[j]), -1e-12 * xlogx(c.Mean[j])},
					} {
						if !(math.Abs(f.got-f.want) <= f.within) {
							t.Errorf("%v, %s, %d passes: %s = %v, want %v, off by %.2g of %.2g (%v)",
								v, kind, passes, f.name, f.got, f.want, f.got-f.want, f.within, column[:min(passes, 5)])
						}
					}
				}
			}
		}
	}
}

type moments struct{ mean, variance, third, thirdSize, skewness, skewnessSize, m float64 }

func (m moments) c() float64 { return m.variance / (2 * (m.mean + 1e-10)) }

func reference(column []float64) moments {
	number := func(x float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(x) }
	n := number(float64(len(column)))
	mean := number(0)
	for _, p := range column {
		mean.Add(mean, number(p))
	}
	mean.Quo(mean, n)
	m2, m3, m3Size, m := number(0), number(0), number(0), number(0)
	b, _ := mean.Float64()
	for _, p := range column {
		d := number(p)
		d.Sub(d, mean)
		square := number(0).Mul(d, d)
		cube := number(0).Mul(square, d)
		m2.Add(m2, square)
		m3.Add(m3, cube)
		m3Size.Add(m3Size, number(0).Abs(cube))
		near, _ := d.Float64()
		m.Add(m, number(divergence(p, b, near)))
	}
	float := func(sum *big.Float, divisor float64) float64 {
		f, _ := number(0).Quo(sum, number(divisor)).Float64()
		return f
	}
	s := float64(len(column))
	r := moments{mean: b, variance: float(m2, s-1), third: float(m3, s), thirdSize: float(m3Size, s), m: float(m, s)}
	if r.variance > 0 {
		r.skewness = math.Abs(r.third) / (3 * b * r.variance)
		r.skewnessSize = r.thirdSize / (3 * b * r.variance)
	}
	return r
}

// divergence returns a log(a/b) - a + b with d = a-b, for a, b >= 0. Near a = b it uses the series
// of the logarithm in (a-b)/(a+b).
func divergence(a, b, d float64) float64 {
	switch {
	case d == 0 || b == 0:
		return 0
	case a == 0:
		return b
	case math.Abs(d) < 0.25*b:
		r := d / (a + b)
		q := r * r
		t := r * q * (1./3 + q*(1./5+q*(1./7+q*(1./9+q*(1./11+q*(1./13+q*(1./15+q*(1./17+q*(1./19)))))))))
		return 2 * b * (q + (1+r)*t) / (1 - r)
	}
	return a*math.Log(a/b) - d
}

func xlogx(x float64) float64 {
	if x == 0 {
		return 0
	}
	return x * math.Log(x)
}

func TestEqualColumns(t *testing.T) {
	t.Run("float32", rapid.MakeCheck(equalColumns[float32]))
	t.Run("float64", rapid.MakeCheck(equalColumns[float64]))
}

// equalColumns checks that columns of equal values have exact results: no spread, and the value as
// the mean.
func equalColumns[T float](t *rapid.T) {
	p := T(rapid.Float64Range(0, 1).Draw(t, "p"))
	if rapid.Bool().Draw(t, "denormal") {
		p = T(math.Float64frombits(rapid.Uint64Range(0, 1<<53).Draw(t, "bits")))
	}
	passes, width := rapid.IntRange(2, 1000).Draw(t, "passes"), rapid.IntRange(1, 9).Draw(t, "width")
	data := make([]T, passes*width)
	for i := range data {
		data[i] = p
	}
	for _, v := range versions() {
		c := NewColumns(width)
		runVariant(v, func() { Moments(c, data, passes, width, width, float64(passes)) })
		for j := range width {
			if c.Mean[j] != float64(p) || c.Variance[j] != 0 || c.ThirdMoment[j] != 0 || c.C[j] != 0 ||
				c.Skewness[j] != 0 || c.M[j] != 0 {
				t.Fatalf("%v: column %d of %d times %v: mean %v, variance %v, third moment %v, C %v, skewness %v, M %v",
					v, j, passes, p, c.Mean[j], c.Variance[j], c.ThirdMoment[j], c.C[j], c.Skewness[j], c.M[j])
			}
		}
	}
}

// child is set if the test binary runs itself.
const child = "KERNEL_TEST_CHILD"

// TestGODEBUG checks that GODEBUG switches versions off without changing results.
func TestGODEBUG(t *testing.T) {
	if os.Getenv(child) != "" {
		fmt.Printf("child: %s %s\n", Name(), fixed())
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(godebug string) string {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestGODEBUG$")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG="+godebug)
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.ENOEXEC) {
			t.Skip("the test runs under an emulator of its processor, and cannot start itself")
		}
		if err != nil {
			t.Fatalf("GODEBUG=%s: %v\n%s", godebug, err, out)
		}
		return string(out)
	}
	// GODEBUG may already have switched off versions that the processor has.
	processor, all := scalar, run("")
	for v := scalar; v <= avx512; v++ {
		if strings.Contains(all, fmt.Sprintf("child: %v ", v)) {
			processor = v
		}
	}
	for godebug, most := range map[string]variant{
		"":                            avx512,
		"cpu.avx512f=off":             avx2,
		"cpu.avx512vl=off":            avx2,
		"cpu.avx2=off":                scalar,
		"cpu.fma=off":                 scalar,
		"cpu.avx512f=off,cpu.fma=off": scalar,
	} {
		out, want := run(godebug), fmt.Sprintf("child: %v %s\n", min(most, processor), fixed())
		if !strings.Contains(out, want) {
			t.Errorf("GODEBUG=%s: got\n%swant %s", godebug, out, want)
		}
	}
}

// fixed returns a digest of everything computed from a fixed panel.
func fixed() string {
	r := rand.New(rand.NewPCG(3, 4))
	data := panel[float32](r, func() string { return kinds[r.IntN(len(kinds))] }, 30, 37, 40)
	digest := uint64(14695981039346656037)
	for _, x := range everything(data, 30, 37, 40) {
		digest = (digest ^ math.Float64bits(x)) * 1099511628211
	}
	return fmt.Sprintf("%016x", digest)
}

// TestTwoPasses checks that the third moment of two passes is exactly 0.
func TestTwoPasses(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	for _, v := range versions() {
		runVariant(v, func() {
			c, data := NewColumns(100), make([]float32, 200)
			for i := range data {
				data[i] = r.Float32()
			}
			Moments(c, data, 2, 100, 100, 1)
			for j := range 100 {
				if c.ThirdMoment[j] != 0 || c.Skewness[j] != 0 || c.Variance[j] == 0 {
					t.Fatalf("%v: column %d: third moment %v, skewness %v, variance %v", v, j, c.ThirdMoment[j], c.Skewness[j], c.Variance[j])
				}
			}
		})
	}
}
