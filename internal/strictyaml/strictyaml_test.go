package strictyaml

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// collect parses text and returns its root and a function that returns the faults so far, each as
// line:col: path: reason.
func collect(text string) (root Value, ok bool, faults func() []string) {
	var found Faults
	root, ok = Parse("f", []byte(text), &found)
	return root, ok, func() (lines []string) {
		for _, f := range found {
			lines = append(lines, fmt.Sprintf("%d:%d: %s: %s", f.Line, f.Col, f.Field, f.Reason))
		}
		return lines
	}
}

func TestParseFaults(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"empty", "", "1:1: : empty, expected a mapping"},
		{"comment", "# a\n\n# b\n", "1:1: : empty, expected a mapping"},
		{"null", "--- ~\n", "1:1: : empty, expected a mapping"},
		{"too large", strings.Repeat("#", MaxBytes+1), "1:1: : too large, expected at most 4194304 bytes"},
		{"second document", "a: 1\n---\nb: 2\n", "2:1: : a second document, expected only one"},
		{"empty second document", "a: 1\n---\n", "2:1: : a second document, expected only one"},
		{"not UTF-8", "a: 1\nüb: \xff\n", "2:1: : not YAML near here: invalid leading UTF-8 octet"},
		{"NUL", "a: \x00", "1:1: : not YAML near here: control characters are not allowed"},

		{"tab", "a:\n\tb: 1\n", "2:1: : not YAML near here: found character that cannot start any token"},
		{"indentation", "a:\n  - b: 1\n   c: 2\nd: 3\n", "3:1: : not YAML near here: did not find expected '-' indicator"},
		{"second colon", "\n\na: b: c\n", "3:1: : not YAML near here: mapping values are not allowed in this context"},
		{"bracket, read on to the next line", "a: [1,\n  2]]\nb: 3\nc: 4\n", "3:1: : not YAML near here: did not find expected key"},
		{"open quote", "a: 1\nb: 'x\nc: 2\nd: 3\n", "2:1: : not YAML near here: found unexpected end of stream"},
		{"escape", "a: 1\nb: \"\\q\"\n", "2:1: : not YAML near here: found unknown escape character"},
		{"unknown anchor", "a: 1\nb: *x\n", "2:1: : not YAML near here: unknown anchor 'x' referenced"},
		{"in the second document", "a: 1\n---\n[\n", "3:1: : not YAML near here: did not find expected node content"},
		{"too deep", "a:\n" + strings.Repeat("- ", 20000), "2:1: : not YAML near here: exceeded max depth of 10000"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, ok, faults := collect(test.text)
			if got := strings.Join(faults(), "\n"); ok || got != test.want {
				t.Errorf("%t, faults\n%s\nwant\n%s", ok, got, test.want)
			}
		})
	}
}

// TestParse checks texts that are one document although they look like two, or like none.
func TestParse(t *testing.T) {
	for _, text := range []string{"a: 1", "--- # x\na: 1\n...\n", "\ufeffa: 1", "a: 1\r\n", "# c\n\n{a: 1}", "\"\\u0001\""} {
		if _, ok, faults := collect(text); !ok || len(faults()) > 0 {
			t.Errorf("%q: %t, %q", text, ok, faults())
		}
	}
}

// TestGetters checks which values getters accept and which they refuse.
func TestGetters(t *testing.T) {
	type result struct {
		value any
		ok    bool
	}
	getters := map[string]func(Value) result{
		"text":  func(v Value) result { x, ok := v.Text(); return result{x, ok} },
		"enum":  func(v Value) result { x, ok := v.Enum("never", "always"); return result{x, ok} },
		"bool":  func(v Value) result { x, ok := v.Bool(); return result{x, ok} },
		"int":   func(v Value) result { x, ok := v.Int(-5, 2000); return result{x, ok} },
		"float": func(v Value) result { x, ok := v.Float(Above(0)); return result{x, ok} },
		"zero":  func(v Value) result { x, ok := v.Float(Range{}); return result{1 / x, ok} },
	}
	const fault = "FAULT "
	tests := []struct {
		getter, text string
		want         any
	}{
		{"text", "no", "no"},
		{"text", "1e3", "1e3"},
		{"text", "<<", "<<"},
		{"text", `"null"`, "null"},
		{"text", "''", ""},
		{"text", "a b  # comment", "a b"},
		{"text", "|\n  two\n  lines", "two\nlines\n"},
		{"text", "null", fault + "expected text, found nothing"},
		{"text", "~", fault + "expected text, found nothing"},
		{"text", "", fault + "expected text, found nothing"},
		{"text", "[a]", fault + "expected text, found a list"},
		{"text", "{a: b}", fault + "expected text, found a mapping"},
		{"text", "!!str 1", fault + "expected text, found a tag: tags are not used here, write the value alone"},
		{"text", "&x a", fault + "expected text, found an anchor: anchors are not used here, write the value alone"},

		{"enum", "never", "never"},
		{"enum", "'always'", "always"},
		{"enum", "Never", fault + `expected one of never, always, found "Never", did you mean "never"?`},
		{"enum", "no", fault + `expected one of never, always, found "no"`},

		{"bool", "true", true},
		{"bool", "False", false},
		{"bool", "yes", fault + `expected true or false, found text "yes"`},
		{"bool", `"true"`, fault + `expected true or false, found text "true"`},
		{"bool", "1", fault + "expected true or false, found 1"},

		{"int", "0", 0},
		{"int", "+12", 12},
		{"int", "-5", -5},
		{"int", "2000", 2000},
		{"int", "2001", fault + "expected a whole number from -5 to 2000, found 2001"},
		{"int", "99999999999999999999", fault + "expected a whole number from -5 to 2000, found 99999999999999999999"},
		{"int", "010", fault + "expected a whole number from -5 to 2000, found 010"},
		{"int", "0x10", fault + "expected a whole number from -5 to 2000, found 0x10"},
		{"int", "1_000", fault + "expected a whole number from -5 to 2000, found 1_000"},
		{"int", "1e3", fault + "expected a whole number from -5 to 2000, found 1e3"},
		{"int", `"2"`, fault + `expected a whole number from -5 to 2000, found text "2"`},
		{"int", "", fault + "expected a whole number from -5 to 2000, found nothing"},

		{"float", "1e-3", 1e-3},
		{"float", ".5", 0.5},
		{"float", "+1E+2", 100.0},
		{"float", "4.9e-324", 5e-324},
		{"float", "0", fault + "expected a finite number > 0, found 0"},
		{"float", "1e-400", fault + "expected a finite number > 0, found 1e-400"},
		{"float", "-1", fault + "expected a finite number > 0, found -1"},
		{"float", ".nan", fault + "expected a finite number > 0, found .nan"},
		{"float", ".inf", fault + "expected a finite number > 0, found .inf"},
		{"float", "1e309", fault + "expected a finite number > 0, found 1e309"},
		{"float", "0x1p3", fault + `expected a finite number > 0, found text "0x1p3"`},
		{"float", "1_0.5", fault + "expected a finite number > 0, found 1_0.5"},
		{"float", "'1'", fault + `expected a finite number > 0, found text "1"`},
		{"float", "1,5", fault + `expected a finite number > 0, found text "1,5" (a decimal comma? write 1.5)`},
		{"float", "0,05 # five percent", fault + `expected a finite number > 0, found text "0,05" (a decimal comma? write 0.05)`},
		{"float", "-,5", fault + `expected a finite number > 0, found text "-,5" (a decimal comma? write -.5)`},
		{"float", "1,000,5", fault + `expected a finite number > 0, found text "1,000,5"`},

		{"zero", "0", math.Inf(1)},
		{"zero", "-0.0", math.Inf(1)}, // 1/-0 would be -Inf
	}
	for _, test := range tests {
		t.Run(test.getter+" "+test.text, func(t *testing.T) {
			root, _, faults := collect("x: 1\na: " + test.text + "\n")
			m, _ := root.Mapping("a", "x")
			v, _ := m.Get("a")
			got := getters[test.getter](v)
			if reason, isFault := test.want.(string); isFault && strings.HasPrefix(reason, fault) {
				want := "2:4: a: " + strings.TrimPrefix(reason, fault)
				if test.text == "" {
					want = strings.Replace(want, "2:4", "2:3", 1)
				}
				if got.ok || len(faults()) != 1 || faults()[0] != want {
					t.Errorf("%v, %t, faults %q, want %q", got.value, got.ok, faults(), want)
				}
				return
			}
			if !got.ok || got.value != test.want || len(faults()) > 0 {
				t.Errorf("%#v, %t, faults %q, want %#v", got.value, got.ok, faults(), test.want)
			}
		})
	}
}

func TestMapping(t *testing.T) {
	root, _, faults := collect(`server:
  addresss: x
  port: 1
  "port": 2
  <<: {a: b}
  [a]: 1
  ~: 1
  "a:b\n": 1
  &x name: 1
limits: {}
list: [a, {b: c}, [d]]
`)
	m, ok := root.Mapping("server", "limits", "list", "log")
	if !ok {
		t.Fatal("no mapping")
	}
	server, _ := m.Get("server")
	if fields, ok := server.Mapping("address", "port", "name"); ok {
		port, ok := fields.Get("port")
		if n, _ := port.Int(0, 9); !ok || n != 1 || port.Path() != "server.port" || port.Line() != 3 || port.Col() != 9 {
			t.Errorf("port %d at %s %d:%d", n, port.Path(), port.Line(), port.Col())
		}
		fields.Need("address", "an address")
	}
	limits, _ := m.Get("limits")
	if fields, ok := limits.Mapping("passes"); ok {
		fields.Need("passes", "a number")
	}
	if _, given := m.Get("log"); given {
		t.Error("log is given")
	}
	list, _ := m.Get("list")
	items, _ := list.List()
	for _, item := range items {
		item.Text()
	}
	items[1].Silent().Text()
	items[1].Secret().Text()
	for _, valid := range []bool{false, true} {
		entry, _ := items[1].Entry("item", func(string) bool { return valid })
		entry.Mapping("name")
	}
	list.Mapping()
	limits.List()

	want := []string{
		`2:3: server.addresss: unknown field, did you mean "address"?`,
		`4:3: server.port: given twice, first at 3:3`,
		`5:3: server: merge key <<, expected every field to be written out`,
		`6:3: server: expected a field name, found a list`,
		`7:3: server.~: unknown field`,
		`8:3: server."a:b\n": unknown field`,
		`9:3: server: expected a field name, found an anchor: anchors are not used here, write the value alone`,
		`2:3: server.address: missing, expected an address`,
		`10:9: limits.passes: missing, expected a number`,
		`11:11: list[1]: expected text, found a mapping`,
		`11:19: list[2]: expected text, found a list`,
		`11:11: list[1]: expected text`,
		`11:12: list[1].b: unknown field`,
		`11:12: b: unknown field`,
		`11:7: list: expected a mapping, found a list`,
		`10:9: limits: expected a list, found a mapping`,
	}
	if diff := cmp.Diff(want, faults()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// TestDecimalCommaInBraces checks the message about a decimal comma in braces, where it separates
// fields.
func TestDecimalCommaInBraces(t *testing.T) {
	for text, want := range map[string]string{
		"{score: mi, threshold: 0,05}": `1:26: 05: unknown field (a decimal comma? write 0.05)`,
		"{threshold: 1,5, score: mi}":  `1:15: 5: unknown field (a decimal comma? write 1.5)`,
		"{threshold: 0,05: 1}":         `1:15: 05: unknown field`,
		"{score: mi,05}":               `1:12: 05: unknown field`,
	} {
		root, _, faults := collect(text)
		root.Mapping("score", "threshold")
		if got := strings.Join(faults(), "\n"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestAliases checks that a message names an alias as an alias, even if its target is what was
// expected, and that an alias that contains itself does no harm.
func TestAliases(t *testing.T) {
	root, _, faults := collect("a: &x [1]\nb: *x\nc: &y [*y]\n")
	m, _ := root.Mapping("a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		v, _ := m.Get(name)
		v.List()
	}
	want := []string{
		"1:4: a: expected a list, found an anchor: anchors are not used here, write the value alone",
		"2:4: b: expected a list, found an alias: aliases are not resolved, write the value out",
		"3:4: c: expected a list, found an anchor: anchors are not used here, write the value alone",
	}
	if diff := cmp.Diff(want, faults()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestRange(t *testing.T) {
	tests := []struct {
		r         Range
		words     string
		text, out []float64
	}{
		{AtLeast(0), "a finite number >= 0", []float64{0, 1, math.MaxFloat64}, []float64{-5e-324, math.Inf(1), math.NaN()}},
		{Above(0), "a finite number > 0", []float64{5e-324, 1}, []float64{0, -1, math.Inf(1), math.NaN()}},
		{Between(0.5, 2), "a number from 0.5 to 2", []float64{0.5, 2}, []float64{0.49, 2.01, math.Inf(-1), math.NaN()}},
	}
	for _, test := range tests {
		if got := test.r.String(); got != test.words {
			t.Errorf("%q, want %q", got, test.words)
		}
		for _, x := range test.text {
			if !test.r.Contains(x) {
				t.Errorf("%v is not in %v", x, test.r)
			}
		}
		for _, x := range test.out {
			if test.r.Contains(x) {
				t.Errorf("%v is in %v", x, test.r)
			}
		}
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"threshold", "fewest", "expected", "c_crit_max", "mi"}
	tests := []struct{ text, want string }{
		{"treshold", "threshold"},
		{"thresohld", "threshold"},
		{"Threshold", "threshold"},
		{"c-crit-max", "c_crit_max"},
		{"ccritmax", "c_crit_max"},
		{"MI", "mi"},
		{"m", ""},
		{"something", ""},
		{"", ""},
		{strings.Repeat("threshold", 10), ""},
	}
	for _, test := range tests {
		want := ""
		if test.want != "" {
			want = fmt.Sprintf(", did you mean %q?", test.want)
		}
		if got := Suggest(test.text, names); got != want {
			t.Errorf("Suggest(%q) is %q, want %q", test.text, got, want)
		}
	}
}

// TestQuote checks that a long text does not make a long message.
func TestQuote(t *testing.T) {
	if got := Quote(strings.Repeat("ü", 1000)); got != `"`+strings.Repeat("ü", 80)+`..."` {
		t.Errorf("%s", got)
	}
	if got := Quote("a\n\"b\""); got != `"a\n\"b\""` {
		t.Errorf("%s", got)
	}
}

// FuzzParse calls every getter on every node of any document.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: [1, {b: c}]", "a: &x [*x]\n", "<<: 1", "--- a\n--- b", "a: 'b\n", "\ta", "? [a]\n: {b: !!c d}", "a: |\n b\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var walk func(v Value)
		walk = func(v Value) {
			v.Text()
			v.Enum("a", "b")
			v.Bool()
			v.Int(0, 10)
			if x, ok := v.Float(AtLeast(0)); ok && !(x >= 0 && x <= math.MaxFloat64) {
				t.Errorf("%v is not in range", x)
			}
			if items, ok := v.List(); ok {
				for _, item := range items {
					walk(item)
				}
			}
			if m, ok := v.Mapping("a", "b", "c"); ok {
				for _, name := range []string{"a", "b", "c"} {
					if field, ok := m.Get(name); ok {
						walk(field)
					}
				}
			}
		}
		var faults Faults
		if root, ok := Parse("f", data, &faults); ok {
			walk(root)
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Col < 1 || fault.Reason == "" || strings.ContainsAny(fault.Field+fault.Reason, "\n\r") {
				t.Errorf("fault %+v", fault)
			}
		}
	})
}
