package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/eval"
)

// diagnosisSection is what the model does not know.
func (b *builder) diagnosisSection() (section, error) {
	s := section{
		ID:    "diagnosis",
		Title: "What the model does not know",
		Intro: "The contributions of classes say where the ignorance of the model lies, for the inputs of each class and for " +
			"each kind of error.",
	}
	for _, f := range []*figure{b.profileFigure(), b.confusionFigure(), b.signatureFigure()} {
		if f != nil {
			s.Parts = append(s.Parts, part{Figure: f})
		}
	}
	if t := b.signatureTable(); t != nil {
		s.Parts = append(s.Parts, part{Table: t})
	}
	return s, nil
}

// profileFigure is the mean contribution of each class by true class. Nil where
// the report has none.
func (b *builder) profileFigure() *figure {
	p := b.r.Profiles
	if len(p.Raw) != b.t.K || len(p.Normalised) != b.t.K {
		return nil
	}
	return &figure{
		Title: "Epistemic profiles: about which classes the model is ignorant, by true class",
		Says:  b.profileSays(),
		How: "Rows are the inputs of a true class. The first table has the mean contribution of each class, the second its " +
			"share of the contributions of the input. " + blocks(b) + b.shownSentence(),
		Heats: []heat{
			b.nats("Mean contribution", "true \\ class", false, func(i, j int) float64 { return p.Raw[i][j] }),
			b.matrix("Share of the contributions (%)", "true \\ class", b.anyCritical(), false,
				func(i, j int) float64 { return p.Normalised[i][j] }, func(x float64) string { return fmt.Sprintf("%.0f", 100*x) }),
		},
	}
}

// profileSays is the class of the largest share for the classes that matter: up
// to three critical ones with the most inputs, else any.
func (b *builder) profileSays() string {
	var of []int
	for k, c := range b.r.Classes {
		if c.Support > 0 && (c.Critical || !b.anyCritical()) {
			of = append(of, k)
		}
	}
	text := ""
	for i, k := range largest(b.r.Classes, of, 3) {
		row := b.r.Profiles.Normalised[k]
		top := slices.Index(row, slices.Max(row))
		switch {
		case i == 0:
			text = fmt.Sprintf("Where the truth is %s (%s), %s of the ignorance is about %s", b.r.Classes[k].Name,
				noun(b.r.Classes[k].Support, "input", "inputs"), percent(row[top]), b.r.Classes[top].Name)
		default:
			text += fmt.Sprintf("; where it is %s (%s), %s is about %s", b.r.Classes[k].Name, count(b.r.Classes[k].Support),
				percent(row[top]), b.r.Classes[top].Name)
		}
	}
	if text == "" {
		return "No input belongs to a critical class."
	}
	return text + "."
}

// confusionFigure is the epistemic confusion matrix. Nil where the report has
// none.
func (b *builder) confusionFigure() *figure {
	c := b.r.Confusion
	if c == nil || len(c.Matrix) != b.t.K {
		return nil
	}
	return &figure{
		Title: "Epistemic confusion: between which classes the model cannot decide",
		Says:  b.confusionSays(),
		How: "Mean pair term: how much of the ignorance is about this pair, one class gaining what the " +
			"other loses. Symmetric. " + blocks(b) + b.shownSentence(),
		Heats: []heat{b.nats("Mean pair term", "class \\ class", true, func(i, j int) float64 { return c.Matrix[i][j] })},
	}
}

// confusionSays names the most confused pair, and compares the blocks.
func (b *builder) confusionSays() string {
	c := b.r.Confusion
	x, y := 0, min(1, b.t.K-1)
	for i := range c.Matrix {
		for j := range i {
			if c.Matrix[i][j] > c.Matrix[x][y] {
				x, y = j, i
			}
		}
	}
	text := fmt.Sprintf("The pair most confused is %s and %s (%s nats).", b.r.Classes[x].Name, b.r.Classes[y].Name,
		number(c.Matrix[x][y]))
	if !b.anyCritical() {
		return text
	}
	var in [3]int // safe, neither, critical
	for _, class := range b.r.Classes {
		in[group(class)]++
	}
	var means, ratios []string
	if in[0] > 0 && in[2] > 0 {
		means = append(means, number(c.CrossBoundary)+" nats across the boundary of safe and critical")
	}
	if in[0] > 1 {
		means = append(means, number(c.WithinSafe)+" between two safe classes")
		ratios = append(ratios, times(c.CrossToSafe)+" times that of two safe classes")
	}
	if in[2] > 1 {
		means = append(means, number(c.WithinCritical)+" between two critical ones")
		ratios = append(ratios, times(c.CrossToCritical)+" times that of two critical ones")
	}
	if len(means) > 0 {
		text += " The mean of a pair is " + list(means) + "."
	}
	if len(means) > len(ratios) && len(ratios) > 0 { // there is a mean across
		text += " Across is " + list(ratios) + "."
	}
	return text
}

// barGroup is the bars of one signature.
type barGroup struct {
	Title, Kind, Detail string
	Class               string
	Bars                []bar
}

// bar is a class and its value, as wide as its share of the widest.
type bar struct {
	Name, Full, Value string
	Width             string // percent
	Critical          bool
}

const (
	mostSignatures = 8 // that are drawn
	mostBars       = 5 // in each
	mostRows       = 200
)

// signatureFigure is the contributions of classes for the errors that matter
// most. Nil without errors.
func (b *builder) signatureFigure() *figure {
	var errors []eval.Signature
	for _, s := range b.signatures() {
		if s.True != s.Predicted {
			errors = append(errors, s)
		}
	}
	if len(errors) == 0 {
		return nil
	}
	f := &figure{
		Title: "Signatures of the errors that matter most",
		Says:  b.signatureSays(errors[0]),
		How:   "The mean contribution of each class, in nats, over the inputs of one true (left) and one predicted class.",
	}
	if b.anyCritical() {
		f.How += " Critical inputs missed come first, then false alarms, then other errors; within each, the most frequent."
	}
	if len(errors) > mostSignatures {
		f.How += fmt.Sprintf(" %d of %d kinds of error are drawn.", mostSignatures, len(errors))
		errors = errors[:mostSignatures]
	}
	widest := 0.0
	for _, s := range errors {
		for _, c := range s.C {
			widest = max(widest, c)
		}
	}
	kinds := [...]barGroup{
		{Kind: "missed", Class: "missed"}, {Kind: "false alarm", Class: "alarm"}, {Kind: "other error", Class: "other"},
	}
	for _, s := range errors {
		g := barGroup{}
		if b.anyCritical() {
			g = kinds[b.kind(s)]
		}
		g.Title = s.True + " \u2192 " + s.Predicted
		g.Detail = fmt.Sprintf("%s, MI %s nats", noun(s.N, "input", "inputs"), number(s.MI))
		for _, k := range top(s.C, mostBars) {
			width := 0.0
			if widest > 0 {
				width = 100 * s.C[k] / widest
			}
			g.Bars = append(g.Bars, bar{Name: label(b.r.Classes[k].Name), Full: b.r.Classes[k].Name, Value: number(s.C[k]),
				Width: fmt.Sprintf("%.1f", width), Critical: b.r.Classes[k].Critical})
		}
		f.Bars = append(f.Bars, g)
	}
	if b.anyCritical() {
		f.Legend = []key{{"box vermillion", "critical class"}, {"box blue", "other class"}}
	}
	return f
}

// top are the indices of up to n of the largest values: in class order where
// all are taken, else the largest first.
func top(values []float64, n int) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	if len(values) <= n {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:n]
}

// signatures of the report by importance: missed, false alarms, other errors,
// right ones; within each by inputs.
func (b *builder) signatures() []eval.Signature {
	all := slices.DeleteFunc(slices.Clone(b.r.Signatures), func(s eval.Signature) bool { return len(s.C) != b.t.K })
	slices.SortStableFunc(all, func(x, y eval.Signature) int {
		return cmp.Or(cmp.Compare(b.kind(x), b.kind(y)), cmp.Compare(y.N, x.N))
	})
	return all
}

// kind of a signature: 0 missed, 1 false alarm, 2 another error, 3 right.
func (b *builder) kind(s eval.Signature) int {
	from, to := b.critical(s.True), b.critical(s.Predicted)
	switch {
	case s.True == s.Predicted:
		return 3
	case from && !to:
		return 0
	case to && !from:
		return 1
	default:
		return 2
	}
}

func (b *builder) critical(class string) bool {
	return slices.ContainsFunc(b.r.Classes, func(c eval.Class) bool { return c.Critical && c.Name == class })
}

// signatureSays is about the first of the errors.
func (b *builder) signatureSays(s eval.Signature) string {
	k := slices.Index(s.C, slices.Max(s.C))
	what := "The most frequent error"
	if b.anyCritical() {
		what = [...]string{"The most frequent way to miss a critical input",
			"No critical input is missed; the most frequent false alarm",
			"No critical input is missed, and there is no false alarm; the most frequent other error"}[b.kind(s)]
	}
	return fmt.Sprintf("%s is %s called %s (%s, MI %s nats): there the model is most ignorant about %s (%s nats).", what, s.True,
		s.Predicted, noun(s.N, "input", "inputs"), number(s.MI), b.r.Classes[k].Name, number(s.C[k]))
}

// signatureTable is all signatures, the important ones first. Nil without any.
func (b *builder) signatureTable() *table {
	all := b.signatures()
	if len(all) == 0 {
		return nil
	}
	t := &table{
		Caption: "Signatures of every true and predicted class",
		Says:    "Mean contributions in nats. The errors that matter most come first, right predictions last.",
		Head:    []string{"true", "predicted", "inputs", "MI (nats)"},
		Text:    2,
		Closed:  true,
	}
	if len(all) > mostRows {
		t.Says += fmt.Sprintf(" The first %d of %s.", mostRows, count(len(all)))
		all = all[:mostRows]
	}
	few := b.t.K <= 8
	if few {
		for _, c := range b.r.Classes {
			t.Head = append(t.Head, c.Name)
		}
	} else {
		t.Head = append(t.Head, "dominant", "its contribution")
	}
	for _, s := range all {
		cells := []string{s.True, s.Predicted, count(s.N), number(s.MI)}
		if few {
			for _, c := range s.C {
				cells = append(cells, number(c))
			}
		} else {
			cells = append(cells, s.Dominant, number(slices.Max(s.C)))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
