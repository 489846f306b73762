package document

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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
		for _, tick := range (Ticks{About: test.n, Unit: test.unit, Sign: test.sign}).round(test.low, test.high) {
			labels = append(labels, tick.label)
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
		if n := len((Ticks{About: 5, Unit: 1}).round(0, end)); n < 2 || n > 7 {
			t.Errorf("%d ticks up to %v", n, end)
		}
	})
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if end := RoundUp(x, 5); end != 1 {
			t.Errorf("the axis for %v ends at %v, expected 1", x, end)
		}
	}
}

// TestRuns expects a line to break where there is no number.
func TestRuns(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	f := frame{Axis{Max: 100}, Axis{Max: 100}, 0, 100, 100, 200}
	x, y := []float64{1, 2, 3, 4, 5, 6}, []float64{nan, 20, 30, nan, math.Inf(1), 60}
	if got, want := fmt.Sprint(f.runs(x, y)), "[[{2 180} {3 170}] [{6 140}]]"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// TestCut expects the parts of lines inside the frame.
func TestCut(t *testing.T) {
	t.Parallel()
	f := frame{Axis{}, Axis{}, 0, 10, 0, 10}
	for _, test := range []struct {
		name string
		line []point
		want string
	}{
		{"inside", []point{{1, 1}, {9, 2}}, "[[{1 1} {9 2}]]"},
		{"outside", []point{{-5, 1}, {-1, 2}}, "[]"},
		{"around a corner", []point{{-4, 8}, {4, 16}}, "[]"},
		{"through both sides", []point{{-10, 5}, {20, 5}}, "[[{0 5} {10 5}]]"},
		{"out and in again", []point{{2, 5}, {2, 15}, {4, 15}, {4, 5}}, "[[{2 5} {2 10}] [{4 10} {4 5}]]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := fmt.Sprint(f.cut([][]point{test.line})); got != test.want {
				t.Errorf("%s, expected %s", got, test.want)
			}
		})
	}
}

// TestEscape expects text to stay text, and to hold nothing that XML forbids.
func TestEscape(t *testing.T) {
	t.Parallel()
	const nasty = "a \"name\" <b> & \x00\x1b\xff"
	f := &Figure{Title: nasty, Says: nasty, Legend: []Key{{MarkSolid, Blue, nasty}},
		Plots: []Plot{{Height: 90, X: Axis{Label: nasty, Max: 1}, Y: Axis{Label: nasty, Max: 1, Ticks: Ticks{About: 1, Unit: 1, Sign: nasty}}}}}
	var texts int
	for _, e := range parse(t, string(picture(f))) {
		if e.XMLName.Local == "text" && strings.Contains(e.Text, `a "name" <b> &`) {
			texts++
		}
	}
	if texts != 4 {
		t.Errorf("%d texts have the name, expected two axes and two ticks", texts)
	}
}

// element holds what the tests look at in a mark of an SVG picture.
type element struct {
	XMLName xml.Name
	Class   string    `xml:"class,attr"`
	Style   string    `xml:"style,attr"`
	D       string    `xml:"d,attr"`
	X       float64   `xml:"x,attr"`
	Y       float64   `xml:"y,attr"`
	Text    string    `xml:",chardata"`
	Inner   []element `xml:",any"`
}

// parse returns the elements of a picture, those of a panel's data below its group.
func parse(t testing.TB, svg string) []element {
	t.Helper()
	var root element
	if err := xml.Unmarshal([]byte(svg), &root); err != nil {
		t.Fatalf("%v in\n%s", err, svg)
	}
	return root.Inner
}

// places returns the points of a path.
func places(t testing.TB, d string) (all []point) {
	t.Helper()
	for _, part := range strings.FieldsFunc(d, func(r rune) bool { return strings.ContainsRune("MLZ", r) }) {
		var p point
		if _, err := fmt.Sscanf(part, "%g,%g", &p.x, &p.y); err != nil {
			t.Fatalf("%q in %q: %v", part, d, err)
		}
		all = append(all, p)
	}
	return all
}

// TestPanels draws any values in two panels. Each line of the figure must be one element, everything
// must be inside its panel, and no panel or label may reach into another or out of the picture.
func TestPanels(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(-2, 3), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)), rapid.Just(1e300))
		values := func() (x, y []float64) {
			x = rapid.SliceOfN(rapid.Float64Range(-1, 2), 1, 9).Draw(rt, "x")
			slices.Sort(x)
			return x, rapid.SliceOfN(value, len(x), len(x)).Draw(rt, "y")
		}
		f := &Figure{Title: "title"}
		for i := range 2 {
			p := Plot{Height: float64(80 + 40*i), X: Axis{Label: "x", Max: 1, Ticks: Ticks{About: 5, Unit: 100, Sign: "%"}},
				Y: Axis{Label: "y", Max: rapid.OneOf(rapid.Just(0.), rapid.Float64Range(1e-4, 1e6)).Draw(rt, "end"), Ticks: Ticks{About: 3, Unit: 1}}}
			x, y := values()
			p.Lines = append(p.Lines, Line{Stroke{Blue, MarkLong, 1.5}, x, y})
			f.Plots = append(f.Plots, p)
		}
		svg := string(picture(f))
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, "e+") {
			rt.Fatalf("no number in\n%s", svg)
		}
		var panels []frame
		for _, e := range parse(t, svg) {
			switch {
			case e.XMLName.Local == "path" && strings.Contains(e.Style, "--muted"):
				all := places(t, e.D)
				corners := all[len(all)-3:] // the axes are the last of their path
				panels = append(panels, frame{left: corners[0].x, top: corners[0].y, right: corners[2].x, bottom: corners[2].y})
			case e.XMLName.Local == "text":
				if e.X < 0 || e.X > figureWidth {
					rt.Errorf("%q is at %v", e.Text, e.X)
				}
				if strings.Contains(e.Style, "end") && e.X-measure(strings.TrimSpace(e.Text), textSize) < 2*textSize {
					rt.Errorf("%q reaches over the axis' label", e.Text)
				}
			case e.Class == "data":
				panel, lines := panels[len(panels)-1], 0
				for _, m := range e.Inner {
					for _, p := range places(t, m.D) {
						if p.x < panel.left || p.x > panel.right || p.y < panel.top || p.y > panel.bottom {
							rt.Errorf("%v is not in %v", p, panel)
						}
					}
					if strings.Contains(m.Style, "stroke:var(--blue)") {
						lines++
					}
				}
				if lines > 1 {
					rt.Errorf("the line has %d elements", lines)
				}
			}
		}
		if len(panels) != 2 || panels[0].left != panels[1].left || panels[0].right != panels[1].right || panels[0].bottom >= panels[1].top {
			rt.Errorf("the panels are %v", panels)
		}
	})
}

// TestDashes expects every kind of line to have a pattern of its own, in pictures and in legends.
func TestDashes(t *testing.T) {
	t.Parallel()
	style, err := files.ReadFile("style.css")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]Mark{}
	for _, mark := range []Mark{MarkSolid, MarkLong, MarkDashed, MarkDashDot, MarkDotted} {
		if other, twice := seen[dashes[mark]]; twice {
			t.Errorf("%s looks like %s", mark, other)
		}
		seen[dashes[mark]] = mark
		if mark != MarkSolid && !strings.Contains(string(style), ".key."+string(mark)+" {") {
			t.Errorf("the legend of a page has no %s", mark)
		}
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
