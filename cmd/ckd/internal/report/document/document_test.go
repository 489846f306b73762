package document

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{Count(0), "0"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(1234567), "1,234,567"}, {Count(-12345), "-12,345"},
		{Percent(0.10594), "10.6%"}, {RoundPercent(0.8), "80%"}, {RoundPercent(0.825), "82.5%"}, {RoundPercent(0.1), "10%"},
		{Decimal(0.04213), "0.0421"}, {Decimal(0.0), "0.0000"}, {Percent(math.NaN()), "n/a"}, {Decimal(math.NaN()), "n/a"}, {Decimal(-0.00029), "-0.00029"}, {Decimal(12.5), "12.5000"},
		{Digits(0.0), "0"}, {Digits(0.2217), "0.222"}, {Digits(1.234), "1.23"}, {Digits(12.34), "12.3"}, {Digits(1234.0), "1234"},
		{Digits(0.000123), "1.2e-04"}, {Digits(-3.14159), "-3.14"},
		{fewDigits(0), "0"}, {fewDigits(0.214), ".21"}, {fewDigits(0.999), "1.0"}, {fewDigits(9.94), "9.9"}, {fewDigits(9.96), "10"}, {fewDigits(123.4), "123"},
		{Noun(1, "input"), "1 input"}, {Noun(2000, "input"), "2,000 inputs"},
		{List(nil), ""}, {List([]string{"a"}), "a"}, {List([]string{"a", "b", "c"}), "a, b and c"},
		{Plain(0.3), "0.3"}, {Plain(3), "3"},
		{Label("a\nb\x00c"), "a b c"}, {Label(""), "(no name)"}, {Label("a\xffb"), "a\uFFFDb"},
		{Label(strings.Repeat("ü", 25)), strings.Repeat("ü", 23) + "\u2026"}, {Label(strings.Repeat("ü", 24)), strings.Repeat("ü", 24)},
	} {
		if test.got != test.want {
			t.Errorf("%q, expected %q", test.got, test.want)
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
		for _, tick := range (Ticks{About: test.n, Unit: test.unit, Sign: test.sign}).ticker().Ticks(test.low, test.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("%v to %v: %q, expected %q", test.low, test.high, got, test.want)
		}
	}
}

// TestRoundUp expects an axis to have room for its highest value and not much more, with few ticks.
func TestRoundUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-12, 1e12).Draw(t, "x")
		end := RoundUp(x, 5)
		if !(end >= x*(1-1e-9) && end <= 1.5*x) {
			t.Errorf("the axis for %v ends at %v", x, end)
		}
		if n := len((Ticks{About: 5, Unit: 1}).ticker().Ticks(0, end)); n < 2 || n > 7 {
			t.Errorf("%d ticks up to %v", n, end)
		}
	})
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if end := RoundUp(x, 5); end != 1 {
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

// TestInks expects every ink to become its own variable, whatever its opacity. Text that looks like
// a style must stay as it is.
func TestInks(t *testing.T) {
	t.Parallel()
	for i := range inkNames {
		for opacity := 26; opacity <= 255; opacity++ {
			svg, err := render(10, 10, "name", func(c draw.Canvas) {
				c.SetColor(Ink(i).faint(uint8(opacity)))
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

// TestStack expects panels to begin and end at the same x, though their labels are not equally
// wide.
func TestStack(t *testing.T) {
	t.Parallel()
	upper, lower := newPlot("", "y"), newPlot("x", "")
	var ends [][2]vg.Length
	for i, p := range []*plot.Plot{upper, lower} {
		p.X.Max, p.X.Min, p.Y.Min, p.Y.Max = 1, 0, 0, 1
		p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0.5, Label: strings.Repeat("wide", i)}}
		p.Add(plotterFunc(func(c draw.Canvas) { ends = append(ends, [2]vg.Length{c.Min.X, c.Max.X}) }))
	}
	_, err := render(figureWidth, 160, "two panels", func(c draw.Canvas) {
		drawStack(c, []*plot.Plot{upper, lower}, []vg.Length{100, 60})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ends) != 2 || math.Abs(float64(ends[0][0]-ends[1][0])) > 1e-9 || math.Abs(float64(ends[0][1]-ends[1][1])) > 1e-9 {
		t.Errorf("the panels are from and to %v", ends)
	}
}

// TestOutline expects the sides of the blocks of two safe classes, one neither and two critical.
func TestOutline(t *testing.T) {
	t.Parallel()
	m := &Matrix{Groups: []Group{Safe, Safe, Neither, Critical, Critical}}
	for _, test := range []struct {
		row, column int
		want        string
	}{
		{0, 0, ""}, {2, 4, ""}, {2, 2, ""},
		{3, 3, "inner top left"}, {3, 4, "inner top right"}, {4, 3, "inner bottom left"}, {4, 4, "inner right bottom"},
		{0, 3, "cross top left"}, {0, 4, "cross top right"}, {1, 4, "cross right bottom"}, {3, 0, "cross top left"}, {4, 1, "cross right bottom"},
	} {
		if got := strings.Join(m.outline(test.row, test.column), " "); got != test.want {
			t.Errorf("row %d, column %d: %q, expected %q", test.row, test.column, got, test.want)
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

type plotterFunc func(draw.Canvas)

func (f plotterFunc) Plot(c draw.Canvas, _ *plot.Plot) { f(c) }

// TestText writes tables that are too long and too wide, and a matrix.
func TestText(t *testing.T) {
	t.Parallel()
	long := &Table{Caption: "long", Head: []string{"name", "share"}, TextColumns: 1, Main: []int{0, 49}}
	wide := &Table{Caption: "wide", Head: []string{"name"}, TextColumns: 1}
	for i := range 50 {
		long.Add(fmt.Sprintf("row %d", i), Share(float64(i)/100))
	}
	cells := []any{strings.Repeat("long", 20) + "\x1b"}
	for i := range 12 {
		wide.Head = append(wide.Head, fmt.Sprintf("column number %d", i))
		cells = append(cells, 1000000*i)
	}
	wide.Add(cells...)
	grid := &Matrix{Caption: "grid", Corner: "true", Groups: make([]Group, 12)}
	for i := range 12 {
		grid.Names = append(grid.Names, fmt.Sprintf("a class of number %d", i))
		grid.Cells = append(grid.Cells, make([]any, 12))
		grid.Values = append(grid.Values, make([]float64, 12))
	}
	grid.Cells[11][3] = Of{7, 9}
	s := NewSection("", "section", "intro", long, (*Table)(nil), wide, (*Figure)(nil),
		&Figure{Title: "figure", Says: "It says.", Matrices: []*Matrix{grid}})
	var b strings.Builder
	if err := Text(&b, &Document{Title: "title", Notes: []string{"a note"}, Sections: []Section{s}}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"title\n=====\n", "Notes\n=====\n- a note\n", "section\n=======\nintro\n", "\nlong\n", "\n row 0    0.0%\n row 49  49.0%\n",
		"48 more rows are left out here", "     column  ", "number 11", "11,000,000", "longlonglon…", "figure\nIt says.\n",
		" 12  a class of number 11", "7 of 9",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(line); n > textWidth+2 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
