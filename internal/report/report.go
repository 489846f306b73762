package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Write writes the report r of the table t, whose inputs have the true classes
// labels, as an HTML page. Nothing is written where it fails before the page is
// complete.
func Write(w io.Writer, r *eval.Report, t *eval.Table, labels []int) error {
	b, err := newBuilder(r, t, labels)
	if err != nil {
		return err
	}
	p, err := b.page()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

//go:embed page.html.tmpl style.css
var files embed.FS

var pageTemplate = template.Must(template.ParseFS(files, "page.html.tmpl"))

// page is what the template shows, in its order.
type page struct {
	Title    string
	Style    template.CSS
	Subject  string // what was evaluated, in a line
	Lead     []string
	Tiles    []tile
	Notes    []string
	Words    []word
	Sections []section
}

// tile is a number that matters.
type tile struct {
	Value, Label, Detail string
	Strong               bool
}

// word is a term and its meaning.
type word struct{ Term, Meaning string }

// section of the page, with a heading of its own.
type section struct {
	ID, Title, Intro string
	Parts            []part
}

// part of a section: one of the two.
type part struct {
	Figure *figure
	Table  *table
}

// figure is a picture with its title and with what it says.
type figure struct {
	Title       string
	Says        string // what it shows, computed
	How         string // how to read it
	LegendTitle string
	Legend      []key
	SVG         template.HTML
	Heats       []heat
	Bars        []barGroup
}

// key is an entry of a legend. Class says how its mark looks.
type key struct{ Class, Text string }

// table of text and numbers. Closed ones can be opened by the reader.
type table struct {
	Caption string
	Says    string
	Head    []string
	// Text is how many columns from the left are text; the others are numbers.
	Text   int
	Rows   [][]string
	Closed bool
}

// longTable is so many rows that a table is closed at first.
const longTable = 15

// TextColumn reports whether column i is text.
func (t *table) TextColumn(i int) bool { return i < t.Text }

// builder holds what every part of the page looks at.
type builder struct {
	r      *eval.Report
	t      *eval.Table
	labels []int
	// shown are the classes that tables of class x class have room for, in
	// groups: safe, neither, critical.
	shown []int
	// byRisk: there are critical inputs, so that risk is critical FNR. Else it
	// is the error rate.
	byRisk bool
}

func newBuilder(r *eval.Report, t *eval.Table, labels []int) (*builder, error) {
	switch {
	case len(r.Classes) != t.K:
		return nil, fmt.Errorf("report: %d classes, expected the %d of the table", len(r.Classes), t.K)
	case len(labels) != t.Inputs:
		return nil, fmt.Errorf("report: %d labels, expected one for each of the %d inputs", len(labels), t.Inputs)
	}
	return &builder{r: r, t: t, labels: labels, shown: shownClasses(r.Classes), byRisk: r.Summary.Critical > 0}, nil
}

func (b *builder) page() (*page, error) {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return nil, err
	}
	p := &page{
		Title:   "Evidence for deferral",
		Style:   template.CSS(style),
		Subject: b.subject(),
		Lead:    b.lead(),
		Tiles:   b.tiles(),
		Notes:   b.r.Notes,
		Words:   b.words(),
	}
	if name := b.r.Source.Passes.Name; name != "" {
		p.Title += ": " + name
	}
	if b.r.Policy != nil {
		p.Sections = append(p.Sections, b.policySection())
	}
	for _, scope := range b.scopes() {
		s, err := b.deferralSection(scope)
		if err != nil {
			return nil, err
		}
		p.Sections = append(p.Sections, s)
	}
	p.Sections = append(p.Sections, b.modelSection())
	for _, section := range []func() (section, error){b.trustSection, b.diagnosisSection} {
		s, err := section()
		if err != nil {
			return nil, err
		}
		p.Sections = append(p.Sections, s)
	}
	p.Sections = append(p.Sections, b.sourceSection())
	return p, nil
}

// scopes of the report, in its order.
func (b *builder) scopes() []policy.Scope {
	var scopes []policy.Scope
	seen := map[policy.Scope]bool{}
	for _, row := range b.r.Policies {
		if !seen[row.Scope] {
			seen[row.Scope] = true
			scopes = append(scopes, row.Scope)
		}
	}
	return scopes
}

// resampled reports whether there are intervals.
func (b *builder) resampled() bool { return b.r.Source.Bootstrap > 0 }
