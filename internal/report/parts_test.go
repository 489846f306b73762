package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/eval"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(1234567), "1,234,567"}, {count(-12345), "-12,345"},
		{percent(0.10594), "10.6%"}, {roundPercent(0.8), "80%"}, {roundPercent(0.825), "82.5%"}, {roundPercent(0.1), "10%"},
		{number(0.04213), "0.0421"}, {number(0), "0.0000"}, {number(-0.00029), "-0.00029"}, {number(12.5), "12.5000"},
		{short(0), "0"}, {short(0.2217), "0.222"}, {short(1.234), "1.23"}, {short(12.34), "12.3"}, {short(1234), "1234"},
		{short(0.000123), "1.2e-04"}, {short(-3.14159), "-3.14"},
		{tiny(0), "0"}, {tiny(0.214), ".21"}, {tiny(0.999), "1.0"}, {tiny(9.94), "9.9"}, {tiny(9.96), "10"}, {tiny(123.4), "123"},
		{noun(1, "input", "inputs"), "1 input"}, {noun(2000, "input", "inputs"), "2,000 inputs"},
		{list(nil), ""}, {list([]string{"a"}), "a"}, {list([]string{"a", "b", "c"}), "a, b and c"},
		{trim(0.3), "0.3"}, {trim(3), "3"},
		{label("a\nb\x00c"), "a b c"}, {label(""), "(no name)"}, {label("a\xffb"), "a\uFFFDb"},
		{label(strings.Repeat("ü", 25)), strings.Repeat("ü", 23) + "\u2026"}, {label(strings.Repeat("ü", 24)), strings.Repeat("ü", 24)},
	} {
		if test.got != test.want {
			t.Errorf("%q, expected %q", test.got, test.want)
		}
	}
}

func TestNatUnit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		highest, perNat float64
	}{{2, 1e3}, {0.001, 1e3}, {0.0009, 1e6}, {1e-6, 1e6}, {9e-7, 1e9}, {0, 1e9}} {
		if perNat, _ := natUnit(test.highest); perNat != test.perNat {
			t.Errorf("%v in units of 1/%v nats, expected 1/%v", test.highest, perNat, test.perNat)
		}
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n         int
		unit      float64
		sign      string
		low, high float64
		want      string
	}{
		{10, 100, "%", 0, 1, "0% 10% 20% 30% 40% 50% 60% 70% 80% 90% 100%"},
		{5, 100, "%", 0, 0.4, "0% 10% 20% 30% 40%"},
		{5, 100, "%", 0, 0.02, "0.0% 0.5% 1.0% 1.5% 2.0%"},
		{3, 1, "", 0, 471, "0 200 400"},
		{6, 1, "", 0, 0.15, "0.00 0.05 0.10 0.15"},
		{3, 1, "", 0, 0, "0"},
	} {
		var labels []string
		for _, tick := range numberTicks(test.n, test.unit, test.sign).Ticks(test.low, test.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("%v to %v: %q, expected %q", test.low, test.high, got, test.want)
		}
	}
}

// An axis has room for its highest value, and not much more; its ticks are few.
func TestRoundUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-12, 1e12).Draw(t, "x")
		end := roundUp(x, 5)
		if !(end >= x*(1-1e-9) && end <= 1.5*x) {
			t.Errorf("the axis for %v ends at %v", x, end)
		}
		if n := len(numberTicks(5, 1, "").Ticks(0, end)); n < 2 || n > 7 {
			t.Errorf("%d ticks up to %v", n, end)
		}
	})
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if end := roundUp(x, 5); end != 1 {
			t.Errorf("the axis for %v ends at %v, expected 1", x, end)
		}
	}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	x, y := []float64{1, 2, 3, 4, 5, 6}, []float64{nan, 20, 30, nan, math.Inf(1), 60}
	if got, want := fmt.Sprint(runs(x, y)), "[[{2 20} {3 30}] [{6 60}]]"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// TestInks: every ink comes out as its own variable, whatever its opacity, and
// text that looks like a style stays as it is.
func TestInks(t *testing.T) {
	t.Parallel()
	for i := range inkNames {
		for opacity := 26; opacity <= 255; opacity++ {
			svg, err := render(10, 10, "name", func(c draw.Canvas) {
				c.SetColor(ink(i).faint(uint8(opacity)))
				c.Fill(c.Path())
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := "fill:var(--" + inkNames[i] + ")"; !strings.Contains(string(svg), want) {
				t.Fatalf("no %s at opacity %d in %s", want, opacity, svg)
			}
		}
	}
	text := `style="fill:#408480" font-family:x`
	svg, err := render(100, 10, `a "name" <b>`, func(c draw.Canvas) {
		style := newPlot("", "").X.Label.TextStyle
		c.FillText(style, vg.Point{}, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"style=&#34;fill:#408480&#34; font-family:x</text>", "font-size:11px;fill:var(--fg)",
		`aria-label="a &#34;name&#34; &lt;b&gt;"`, `viewBox="0 0 116 26"`} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in %s", want, svg)
		}
	}
}

// TestStack: panels begin and end at the same x, though their names are not
// equally wide.
func TestStack(t *testing.T) {
	t.Parallel()
	upper, lower := newPlot("", "y"), newPlot("x", "")
	var ends [][2]vg.Length
	for i, p := range []*plot.Plot{upper, lower} {
		p.X.Max, p.X.Min, p.Y.Min, p.Y.Max = 1, 0, 0, 1
		p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0.5, Label: strings.Repeat("wide", i)}}
		p.Add(plotterFunc(func(c draw.Canvas) { ends = append(ends, [2]vg.Length{c.Min.X, c.Max.X}) }))
	}
	if _, err := stack("two panels", []*plot.Plot{upper, lower}, []vg.Length{100, 60}); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 2 || math.Abs(float64(ends[0][0]-ends[1][0])) > 1e-9 || math.Abs(float64(ends[0][1]-ends[1][1])) > 1e-9 {
		t.Errorf("the panels are from and to %v", ends)
	}
}

type plotterFunc func(draw.Canvas)

func (f plotterFunc) Plot(c draw.Canvas, _ *plot.Plot) { f(c) }

// TestShownClasses: all classes or as many as there is room for, each once, by
// groups; of the critical ones, those with the most inputs.
func TestShownClasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) eval.Class {
			of := rapid.IntRange(0, 2).Draw(t, "group")
			return eval.Class{Safe: of == 0, Critical: of == 2, Support: rapid.IntRange(0, 9).Draw(t, "support")}
		}), 1, 90).Draw(t, "classes")
		shown := shownClasses(classes)
		if len(shown) != min(len(classes), mostShown) {
			t.Fatalf("%d of %d classes", len(shown), len(classes))
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(shown))); len(sorted) != len(shown) {
			t.Fatalf("one is shown twice: %v", shown)
		}
		for i := 1; i < len(shown); i++ {
			if a, b := group(classes[shown[i-1]]), group(classes[shown[i]]); a > b || a == b && shown[i-1] > shown[i] {
				t.Fatalf("not in order: %v", shown)
			}
		}
		for k, c := range classes {
			for _, s := range shown {
				if c.Critical && classes[s].Critical && !slices.Contains(shown, k) && c.Support > classes[s].Support {
					t.Fatalf("class %d has more inputs than %d, and is not shown", k, s)
				}
			}
		}
	})
}

// TestShownClassesOfManyCritical: the critical classes take half the room.
func TestShownClassesOfManyCritical(t *testing.T) {
	t.Parallel()
	classes := make([]eval.Class, 80)
	for k := range classes {
		classes[k] = eval.Class{Critical: k%2 == 0, Support: k}
	}
	critical := 0
	for _, k := range shownClasses(classes) {
		critical += group(classes[k]) / 2
	}
	if critical != mostShown/2 {
		t.Errorf("%d of %d shown are critical, expected half", critical, mostShown)
	}
}

func TestSpaced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, most int
		want    string
	}{{3, 5, "[0 1 2]"}, {10, 4, "[0 2 5 7]"}, {0, 4, "[]"}} {
		if got := fmt.Sprint(spaced(test.n, test.most)); got != test.want {
			t.Errorf("%d of %d: %s, expected %s", test.most, test.n, got, test.want)
		}
	}
}

// TestOutline draws the sides of the blocks of two safe, one neither and two
// critical classes.
func TestOutline(t *testing.T) {
	t.Parallel()
	classes := []eval.Class{{Safe: true}, {Safe: true}, {}, {Critical: true}, {Critical: true}}
	b := &builder{r: &eval.Report{Classes: classes}, shown: shownClasses(classes)}
	for _, test := range []struct {
		row, column int
		want        string
	}{
		{0, 0, ""}, {2, 4, ""}, {2, 2, ""},
		{3, 3, "inner top left"}, {3, 4, "inner top right"}, {4, 3, "inner bottom left"}, {4, 4, "inner right bottom"},
		{0, 3, "cross top left"}, {0, 4, "cross top right"}, {1, 4, "cross right bottom"}, {3, 0, "cross top left"}, {4, 1, "cross right bottom"},
	} {
		if got := strings.Join(b.outline(test.row, test.column), " "); got != test.want {
			t.Errorf("row %d, column %d: %q, expected %q", test.row, test.column, got, test.want)
		}
	}
}

// TestCurves: missed of retained, with no number where nothing is retained.
func TestCurves(t *testing.T) {
	t.Parallel()
	c := &eval.Curve{CriticalRetained: []int{0, 4, 10}, CriticalMissed: []int{0, 1, 5}, Wrong: []int{1, 3, 6}}
	for _, test := range []struct {
		byRisk bool
		want   string
	}{{true, "[NaN 0.25 0.5] [0 4 10]"}, {false, "[NaN 0.5 0.4] [0 6 15]"}} {
		b := &builder{byRisk: test.byRisk, r: &eval.Report{Curves: eval.Curves{
			Coverage: []float64{0, 0.5, 1}, Retained: []int{0, 6, 15}}}}
		risk, of := b.riskCurve(c)
		if got := fmt.Sprint(risk, of); got != test.want {
			t.Errorf("%s, expected %s", got, test.want)
		}
	}
}

func TestHeatLevel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value, highest float64
		want           string
	}{{0, 1, "h0"}, {1e-9, 1, "h1"}, {0.1, 1, "h1"}, {0.11, 1, "h2"}, {1, 1, "h10"}, {3, 3, "h10"}, {1, 0, "h0"}, {math.NaN(), 1, "h0"}} {
		if got := heatLevel(test.value, test.highest); got != test.want {
			t.Errorf("%v of %v: %s, expected %s", test.value, test.highest, got, test.want)
		}
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	if got := top([]float64{1, 3, 2}, 3); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("all: %v, expected them in class order", got)
	}
	if got := top([]float64{1, 3, 2, 3}, 3); !slices.Equal(got, []int{1, 3, 2}) {
		t.Errorf("three of four: %v, expected the largest first", got)
	}
}

func TestSkewnessBins(t *testing.T) {
	t.Parallel()
	b := &builder{r: &eval.Report{Source: eval.Source{Reliability: 0.3}}}
	var got []string
	for _, bin := range b.skewnessBins() {
		got = append(got, fmt.Sprintf("%s %s %v", bin.text, bin.ink, bin.over))
	}
	want := []string{"0 to 0.1 under0 false", "0.1 to 0.2 under1 false", "0.2 to 0.3 under2 false",
		"0.3 to 0.6 over0 true", "0.6 to 1.5 over1 true", "over 1.5 over2 true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}
