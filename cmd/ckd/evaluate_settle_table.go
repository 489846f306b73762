package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/report"
)

// writeFrontierTables prints a frontier.
func writeFrontierTables(w io.Writer, f *report.Frontier) error {
	p, s := newSheet(w), f.Summary
	p.section("What deciding early saves", "Model %s (gate %s, scope %s): %d inputs, %d passes, %d classes. Rules are learned on %d inputs "+
		"and drawn on %d others, of which all passes defer %d.", f.Policy.Model, f.Policy.Gate, f.Policy.Scope, s.Inputs, s.Passes, s.Classes,
		s.LearnedOn, s.DrawnOn, s.Deferred)
	p.text("Halves of the passes differ on %s of the inputs (95%% interval %s): what the same decision is worth.", percent(s.HalvesDiffer),
		sharesBetween(s.HalvesDifferInterval))

	p.section("Passes saved", "At a share of inputs decided otherwise than by all passes.")
	header := []string{"method"}
	var rows [][]string
	for i, m := range f.Methods {
		row, naive := []string{report.MethodWords(m.Name)}, []string{"otherwise by as many passes for every input"}
		for _, at := range m.At {
			if i == 0 {
				header = append(header, fmt.Sprintf("%v%%", 100*at.Disagreement))
			}
			saved := fmt.Sprintf("%.2fx", at.Saving)
			if !at.Reached {
				saved = ">= " + saved
			}
			row, naive = append(row, saved), append(naive, fmt.Sprintf("%.1f%%", 100*at.FewerPasses))
		}
		rows = append(rows, row)
		if m.Name == report.LearnedRule {
			rows = append(rows, naive)
		}
	}
	p.table(1, header, rows)

	orders := "Passes are in one order."
	if f.Source.Orders > 1 {
		orders = fmt.Sprintf("Shares are over %d orders of the passes of each input; exact 95%% intervals and counts over inputs, in the "+
			"first order alone.", f.Source.Orders)
	}
	p.section("Points", "%s Retained is of the inputs that all passes defer.", orders)
	header = []string{"rule", "passes", "saved", "otherwise", "95% interval", "retained"}
	if f.Full.Critical != nil {
		header = append(header, "critical FNR", "95% interval", "missed")
	}
	rows = [][]string{frontierRow("all passes", &f.Full)}
	if f.Rule != nil {
		rows = append(rows, frontierRow("the policy's rule", &f.Rule.FrontierPoint))
	}
	for _, m := range f.Methods {
		for _, point := range someOf(m.Points) {
			rows = append(rows, frontierRow(strings.ReplaceAll(m.Name, "_", " "), &point))
		}
	}
	p.table(1, header, rows)
	if r := f.Rule; r != nil {
		p.text("The policy's rule is certified: with confidence %v, at most %v%% of the inputs are decided otherwise.", r.Confidence, 100*r.Certified)
	}
	p.section("Notes", "")
	p.points(f.Notes)
	files := []eval.File{f.Source.Passes}
	if f.Source.Labels != nil {
		files = append(files, *f.Source.Labels)
	}
	p.computed(f.Source.Software, f.Source.Kind, f.Source.Variance, fmt.Sprintf(" Seed %d.", f.Source.Seed), files...)
	return p.end()
}

// mostFrontierRows of a method are shown. JSON has all of them.
const mostFrontierRows = 14

// someOf the points, spread evenly, with the last one; none as the one before.
func someOf(points []report.FrontierPoint) (some []report.FrontierPoint) {
	for _, p := range points {
		if n := len(some); n == 0 || p.MeanPasses != some[n-1].MeanPasses || p.Disagreement != some[n-1].Disagreement {
			some = append(some, p)
		}
	}
	n := len(some)
	if n <= mostFrontierRows {
		return some
	}
	for i := range mostFrontierRows {
		some[i] = some[i*(n-1)/(mostFrontierRows-1)]
	}
	return some[:mostFrontierRows]
}

func frontierRow(name string, p *report.FrontierPoint) []string {
	row := []string{name, fmt.Sprintf("%.2f", p.MeanPasses), fmt.Sprintf("%.2fx", p.Saving), fmt.Sprintf("%.2f%%", 100*p.Disagreement),
		fmt.Sprintf("%.2f%% to %.2f%%", 100*p.DisagreementInterval[0], 100*p.DisagreementInterval[1]), percent(p.Released)}
	if c := p.Critical; c != nil {
		row = append(row, percent(c.FNR), sharesBetween(c.FNRInterval), fmt.Sprintf("%d of %d", c.Missed, c.Retained))
	}
	return row
}

// sharesBetween are the ends of an interval of shares.
func sharesBetween(i [2]float64) string { return percent(i[0]) + " to " + percent(i[1]) }
