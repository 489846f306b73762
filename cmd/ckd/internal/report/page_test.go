package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// page is an HTML page, parsed.
type page struct {
	text string
	root *html.Node
}

// write writes a report as a page, and checks what holds for every page.
func write(t *testing.T, r *eval.Report, table *eval.Table, labels []int) page {
	t.Helper()
	d, err := Evaluation(r, table, labels, Given{})
	if err != nil {
		t.Fatal(err)
	}
	return writePage(t, d)
}

func writePage(t *testing.T, d *document.Document) page {
	t.Helper()
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := document.HTML(out, d); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same report gave two different pages")
	}
	const most = 3 << 20
	if first.Len() > most {
		t.Errorf("the page has %d bytes, expected at most %d", first.Len(), most)
	}
	root, err := html.Parse(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	p := page{first.String(), root}
	p.holdWellFormed(t)
	p.holdSelfContained(t)
	p.holdAccessible(t)
	return p
}

// all returns the elements of a name.
func (d page) all(name string) []*html.Node { return below(d.root, name) }

func below(n *html.Node, name string) []*html.Node {
	var found []*html.Node
	for c := range n.Descendants() {
		if c.Type == html.ElementNode && c.Data == name {
			found = append(found, c)
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// holdWellFormed expects every element to end inside the element that it begins in.
func (d page) holdWellFormed(t *testing.T) {
	t.Helper()
	var open []string
	tokens := html.NewTokenizer(strings.NewReader(d.text))
	for {
		switch kind := tokens.Next(); kind {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("not closed: %v", open)
			}
			return
		case html.StartTagToken:
			if name, _ := tokens.TagName(); string(name) != "meta" {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			name, _ := tokens.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> closes %v", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// holdSelfContained expects that nothing is loaded or run, and that every colour of a figure is one
// of the style's.
func (d page) holdSelfContained(t *testing.T) {
	t.Helper()
	for _, name := range []string{"script", "link", "img", "image", "iframe", "object", "embed", "use", "base", "form"} {
		if n := len(d.all(name)); n > 0 {
			t.Errorf("%d elements <%s>, expected none", n, name)
		}
	}
	style := textOf(d.all("style")[0])
	for _, load := range []string{"url(", "@import", "@font-face", "http:", "https:"} {
		if strings.Contains(style, load) {
			t.Errorf("the style has %q", load)
		}
	}
	for n := range d.root.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "src" || strings.HasPrefix(a.Key, "on") || strings.Contains(a.Key, "xlink"):
				t.Errorf("<%s> has the attribute %s=%q", n.Data, a.Key, a.Val)
			case a.Key == "href" && !strings.HasPrefix(a.Val, "#"):
				t.Errorf("<%s> refers to %q", n.Data, a.Val)
			case a.Key == "style":
				if regexp.MustCompile(`#|url\(|font-[fvw]`).MatchString(a.Val) {
					t.Fatalf("<%s> has the style %q", n.Data, a.Val)
				}
				for _, variable := range regexp.MustCompile(`var\((--[a-z0-9]+)\)`).FindAllStringSubmatch(a.Val, -1) {
					if n := strings.Count(style, variable[1]+":"); n != 2 {
						t.Fatalf("%s has %d values in the style, expected one for light and one for dark", variable[1], n)
					}
				}
			}
		}
	}
	for _, section := range d.all("a") {
		if !strings.Contains(d.text, `id="`+strings.TrimPrefix(attribute(section, "href"), "#")+`"`) {
			t.Errorf("no part of the page is %s", attribute(section, "href"))
		}
	}
}

// holdAccessible expects titles, sentences and names on figures, and captions and scopes on tables.
func (d page) holdAccessible(t *testing.T) {
	t.Helper()
	for _, svg := range d.all("svg") {
		if attribute(svg, "role") != "img" || len(attribute(svg, "aria-label")) < 20 {
			t.Errorf("a picture has role %q and label %q", attribute(svg, "role"), attribute(svg, "aria-label"))
		}
		if len(below(svg, "text")) < 4 {
			t.Errorf("%q has no text", attribute(svg, "aria-label"))
		}
	}
	for _, figure := range d.all("figure") {
		title, caption := below(figure, "h3"), below(figure, "figcaption")
		if len(title) != 1 || textOf(title[0]) == "" || len(caption) != 1 || !strings.HasSuffix(says(figure), ".") {
			t.Errorf("a figure has no title or no sentence: %.200q", textOf(figure))
		}
	}
	for _, table := range d.all("table") {
		if len(below(table, "caption")) != 1 {
			t.Errorf("a table has no caption: %.200q", textOf(table))
		}
		wide := 0
		for i, row := range below(table, "tr") {
			cells := len(below(row, "td")) + len(below(row, "th"))
			if i == 0 {
				wide = cells
			}
			if cells != wide {
				t.Errorf("%s: row %d has %d cells, expected %d", textOf(below(table, "caption")[0]), i, cells, wide)
			}
		}
	}
	for _, th := range d.all("th") {
		if scope := attribute(th, "scope"); scope != "row" && scope != "col" {
			t.Errorf("the head %q has scope %q", textOf(th), scope)
		}
	}
}

// says returns the sentence under a figure.
func says(figure *html.Node) string { return textOf(below(below(figure, "figcaption")[0], "p")[0]) }

// figures returns the titles of the figures, in the page's order.
func (d page) figures() []string {
	var titles []string
	for _, figure := range d.all("figure") {
		titles = append(titles, textOf(below(figure, "h3")[0]))
	}
	return titles
}

// rows returns the rows of the table with a caption. Cells are joined by |.
func (d page) rows(t *testing.T, caption string) []string {
	t.Helper()
	for _, table := range d.all("table") {
		if textOf(below(table, "caption")[0]) != caption {
			continue
		}
		var rows []string
		for _, tr := range below(table, "tr") {
			var cells []string
			for c := range tr.ChildNodes() {
				if c.Type == html.ElementNode {
					cells = append(cells, textOf(c))
				}
			}
			rows = append(rows, strings.Join(cells, "|"))
		}
		return rows
	}
	t.Fatalf("no table %q", caption)
	return nil
}

func (d page) expectRows(t *testing.T, caption string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, d.rows(t, caption)); d != "" {
		t.Errorf("%s: -want +got:\n%s", caption, d)
	}
}

func (d page) expect(t *testing.T, fragments ...string) {
	t.Helper()
	var b strings.Builder
	for _, body := range d.all("body") {
		b.WriteString(textOf(body))
	}
	for _, f := range fragments {
		if !strings.Contains(b.String(), f) {
			t.Errorf("the page does not say %q", f)
		}
	}
}

func names(k int) []string {
	var all []string
	for i := range k {
		all = append(all, fmt.Sprintf("class %d", i))
	}
	return all
}
