package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// How much of a report its tables show. JSON has all of it.
const (
	mostClassRows  = 40 // classes in tables with a row for each
	mostClassGrid  = 12 // classes in tables of class by class
	mostSignatures = 24
)

// recordingTables prints a report as the tables of the paper, in its order.
type recordingTables struct {
	*sheet
	r *eval.Report
}

func writeRecordingTables(w io.Writer, r *eval.Report) error {
	p := &recordingTables{newSheet(w), r}
	p.summary()
	p.classification()
	p.matrix()
	for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
		p.selective(scope)
	}
	p.paperRule()
	p.skewness()
	p.approximation()
	p.profiles()
	p.signatures()
	p.confusion()
	p.uncertainty()
	p.operatingPoint()
	p.section("Notes", "")
	p.points(r.Notes)
	how := fmt.Sprintf(" %d resamples with seed %d.", r.Source.Bootstrap, r.Source.Seed)
	p.computed(r.Source.Software, r.Source.Kind, r.Source.Variance, how, r.Source.Passes, r.Source.Labels)
	return p.end()
}

func (p *recordingTables) summary() {
	s, source := p.r.Summary, p.r.Source
	var critical []string
	for _, c := range p.r.Classes {
		if c.Critical {
			critical = append(critical, c.Name)
		}
	}
	sets := "no critical classes"
	if critical != nil {
		sets = "critical: " + firstNames(critical)
	}
	p.section("Recording", "%s: %d inputs, %d passes, %d classes (%s).", source.Passes.Name, s.Inputs, s.Passes, s.Classes, sets)
	p.text("Accuracy %s, macro F1 %s, quadratic weighted kappa %s.", fixed(s.Accuracy), fixed(s.MacroF1), fixed(s.QWK))
	if critical != nil {
		p.text("Critical inputs %d, of which %d are predicted as not critical: critical FNR %s.", s.Critical, s.Missed,
			fixed(s.CriticalFNR))
		p.text("A critical class has a skewness above %v in %s of the inputs.", source.Reliability, percent(s.FallbackShare))
	}
	p.text("All classes are reliable in %s of the inputs. Identical passes in %d, one-hot in %d of these.",
		percent(s.AllReliable), s.Degenerate, s.Saturated)
}

func (p *recordingTables) classification() {
	p.section("Classification", "")
	shown := p.shown(mostClassRows)
	var rows [][]string
	for _, k := range shown {
		c := p.r.Classes[k]
		rows = append(rows, []string{shortName(c.Name), set(c), fixed(c.Precision), fixed(c.Recall), fixed(c.F1),
			strconv.Itoa(c.Support), strconv.Itoa(c.Predicted)})
	}
	var macro, weighted [3]float64
	for _, c := range p.r.Classes {
		for i, v := range []float64{c.Precision, c.Recall, c.F1} {
			macro[i] += v / float64(len(p.r.Classes))
			weighted[i] += v * float64(c.Support) / float64(p.r.Summary.Inputs)
		}
	}
	for _, average := range []struct {
		name string
		of   [3]float64
	}{{"macro average", macro}, {"weighted average", weighted}} {
		n := strconv.Itoa(p.r.Summary.Inputs)
		rows = append(rows, []string{average.name, "", fixed(average.of[0]), fixed(average.of[1]), fixed(average.of[2]), n, n})
	}
	p.table(2, []string{"class", "set", "precision", "recall", "F1", "support", "predicted"}, rows)
	p.cut(shown)
}

// set that a class is of.
func set(c eval.Class) string {
	switch {
	case c.Critical:
		return "critical"
	case c.Safe:
		return "safe"
	}
	return ""
}

func (p *recordingTables) matrix() {
	if len(p.r.Matrix) == 0 { // left out of the report, as its notes say
		return
	}
	p.section("Confusion matrix", "Inputs by true class (row) and predicted class (column).")
	p.grid("true", func(i, j int) string { return strconv.Itoa(p.r.Matrix[i][j]) })
}

// grid is a table of class by class. Where names would be too wide for the
// columns, these have the numbers of the classes.
func (p *recordingTables) grid(corner string, cell func(i, j int) string) {
	shown := p.shown(mostClassGrid)
	var names []string
	widest := len(corner)
	for _, k := range shown {
		names = append(names, shortName(p.r.Classes[k].Name))
		widest = max(widest, text.StringWidth(names[len(names)-1]))
	}
	header, labels := append([]string{corner}, names...), 1
	if !fits(names, widest) {
		header, labels = []string{"", corner}, 2
		for _, k := range shown {
			header = append(header, strconv.Itoa(k))
		}
	}
	var rows [][]string
	for at, i := range shown {
		cells := []string{names[at]}
		if labels == 2 {
			cells = []string{strconv.Itoa(i), names[at]}
		}
		for _, j := range shown {
			cells = append(cells, cell(i, j))
		}
		rows = append(rows, cells)
	}
	p.table(labels, header, rows)
	p.cut(shown)
}

// shown are at most so many classes, in their order: the critical ones first,
// then those with the most inputs.
func (p *recordingTables) shown(most int) []int {
	shown := make([]int, len(p.r.Classes))
	for k := range shown {
		shown[k] = k
	}
	slices.SortStableFunc(shown, func(a, b int) int {
		x, y := p.r.Classes[a], p.r.Classes[b]
		if x.Critical != y.Critical {
			if x.Critical {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.Support, x.Support)
	})
	shown = shown[:min(most, len(shown))]
	slices.Sort(shown)
	return shown
}

// cut says what shown left out.
func (p *recordingTables) cut(shown []int) {
	if left := len(p.r.Classes) - len(shown); left > 0 {
		p.text("%d more classes are left out here: --format json has all.", left)
	}
}

// selective is what the rankings of a scope retain.
func (p *recordingTables) selective(scope policy.Scope) {
	rows := rowsOf(p.r, scope)
	if len(rows) == 0 {
		return
	}
	source := p.r.Source
	p.section("Selective prediction, scope "+string(scope), "%s Sorted by AUSC of critical FNR; lower is better. Wins are the "+
		"resamples in which it is the lowest of the scores, and for what is no score, lower than all of them.", aboutScope(scope))
	header := []string{"policy", "AUSC", "resampled", "95% interval", "wins", "crit. error", "error rate", "joint area", "AURC", "AUGRC"}
	var cells [][]string
	for _, r := range rows {
		resampled, interval, wins := "", "", ""
		if source.Bootstrap > 0 {
			resampled = within(r.Bootstrap.Mean, r.Bootstrap.SD)
			interval = fixed(r.Bootstrap.Low) + " to " + fixed(r.Bootstrap.High)
			wins = percent(r.Bootstrap.WinShare)
		}
		cells = append(cells, []string{r.Name, fixed(r.AUSC.CriticalFNR), resampled, interval, wins,
			fixed(r.AUSC.CriticalError), fixed(r.AUSC.ErrorRate), fixed(r.JointArea), fixed(r.AURC), fixed(r.AUGRC)})
	}
	p.table(1, header, cells)

	p.section(fmt.Sprintf("At coverage %v, scope %s", source.Coverage, scope), "%d of %d inputs are retained.",
		rows[0].Retained, p.r.Summary.Inputs)
	header = []string{"policy", "critical FNR", "critical error", "accuracy", "macro F1", "crit. retained", "missed", "crit. deferred"}
	cells = nil
	for _, r := range rows {
		at := r.BootstrapAt
		sd := func(v float64, over eval.Interval) string {
			if source.Bootstrap == 0 {
				return fixed(v)
			}
			return within(v, over.SD)
		}
		cells = append(cells, []string{r.Name, sd(r.CriticalFNR, at.CriticalFNR), sd(r.CriticalError, at.CriticalError),
			sd(r.Accuracy, at.Accuracy), fixed(r.MacroF1), strconv.Itoa(r.CriticalRetained), strconv.Itoa(r.CriticalMissed),
			percent(r.CriticalDeferredShare)})
	}
	p.table(1, header, cells)
	p.curves(scope, rows)
	p.pairwise(scope, rows)
}

func aboutScope(scope policy.Scope) string {
	if scope == policy.PredictedSafe {
		return "Inputs predicted critical are retained first: they get their treatment anyway."
	}
	return "Every input may be deferred."
}

// rowsOf a scope, the lowest AUSC of critical FNR first.
func rowsOf(r *eval.Report, scope policy.Scope) []eval.Row {
	var rows []eval.Row
	for _, row := range r.Policies {
		if row.Scope == scope {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b eval.Row) int { return cmp.Compare(a.AUSC.CriticalFNR, b.AUSC.CriticalFNR) })
	return rows
}

// curves shows the counts behind critical FNR at some coverages.
func (p *recordingTables) curves(scope policy.Scope, rows []eval.Row) {
	if p.r.Summary.Critical == 0 {
		return
	}
	p.section("By coverage, scope "+string(scope), "Critical inputs missed / retained, of %d. Their quotient is critical FNR, "+
		"and each of them over %d the joint curve.", p.r.Summary.Critical, p.r.Summary.Critical)
	header := []string{"policy"}
	var points []int
	for _, coverage := range []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1} {
		points = append(points, nearest(p.r.Curves.Coverage, coverage))
		header = append(header, strconv.FormatFloat(coverage, 'f', 1, 64))
	}
	var cells [][]string
	for _, row := range rows {
		at := slices.IndexFunc(p.r.Curves.Rows, func(c eval.Curve) bool { return c.Name == row.Name && c.Scope == scope })
		if at < 0 {
			continue
		}
		curve := p.r.Curves.Rows[at]
		line := []string{row.Name}
		for _, c := range points {
			line = append(line, fmt.Sprintf("%d/%d", curve.CriticalMissed[c], curve.CriticalRetained[c]))
		}
		cells = append(cells, line)
	}
	p.table(1, header, cells)
}

// nearest is where ascending values are nearest to one.
func nearest(values []float64, to float64) int {
	best := 0
	for i, v := range values {
		if math.Abs(v-to) < math.Abs(values[best]-to) {
			best = i
		}
	}
	return best
}

func (p *recordingTables) pairwise(scope policy.Scope, rows []eval.Row) {
	share := make(map[[2]string]float64)
	for _, pair := range p.r.Pairwise {
		if pair.Scope == scope {
			share[[2]string{pair.Row, pair.Column}] = pair.P
		}
	}
	if len(share) == 0 {
		return
	}
	p.section("Pairwise, scope "+string(scope), "Share of %d resamples in which the AUSC of critical FNR of the row is lower than "+
		"that of the column. Above 0.975 is significant at 5%%, two-sided.", p.r.Source.Bootstrap)
	header := []string{"", "policy"}
	var cells [][]string
	for i, a := range rows {
		header = append(header, strconv.Itoa(i+1))
		line := []string{strconv.Itoa(i + 1), a.Name}
		for _, b := range rows {
			cell := ""
			if v, ok := share[[2]string{a.Name, b.Name}]; ok {
				cell = fixed(v)
			}
			line = append(line, cell)
		}
		cells = append(cells, line)
	}
	p.table(2, header, cells)
}

func (p *recordingTables) paperRule() {
	rule := p.r.PaperRule
	if rule == nil {
		return
	}
	median, threshold := rule.MedianCriticalSkewness, p.r.Source.Reliability
	above := "above"
	if median <= threshold {
		above = "not above"
	}
	p.section("The paper's rule", "The largest median skewness of a critical class is %s, %s the threshold %v: the rule chooses %s for "+
		"the whole recording.", fixed(median), above, threshold, rule.Score)
	p.text("The lowest AUSC is that of %s, lower by %s. The lowest critical FNR at coverage %v is that of %s, lower by %s.",
		rule.BestAUSC, fixed(rule.CostAUSC), p.r.Source.Coverage, rule.BestCriticalFNR, fixed(rule.CostCriticalFNR))
}

func (p *recordingTables) skewness() {
	p.section("Skewness", "Of each class over all inputs. Reliable is the share of inputs under each threshold.")
	shown := p.shown(mostClassRows)
	var all, own [][]string
	for _, k := range shown {
		s := p.r.Skewness[k]
		all = append(all, append([]string{shortName(s.Class)}, skewnessCells(s.SkewnessOf)...))
		for _, of := range s.ByTrue {
			if of.True == s.Class {
				own = append(own, append([]string{shortName(s.Class), strconv.Itoa(of.N)}, skewnessCells(of.SkewnessOf)...))
			}
		}
	}
	figures := []string{"median", "mean", "p90"}
	for _, t := range thresholds(p.r) {
		figures = append(figures, "< "+t)
	}
	p.table(1, append([]string{"class"}, figures...), all)
	p.cut(shown)
	if own == nil {
		return
	}
	p.section("Skewness of the true class", "Of each class over the inputs that are of it.")
	p.table(1, append([]string{"class", "inputs"}, figures...), own)
	p.section("Median skewness", "Of the class in the column, over the inputs of the true class in the row.")
	p.grid("true", func(i, j int) string { return fixed(p.r.Skewness[j].ByTrue[i].Median) })
}

func skewnessCells(s eval.SkewnessOf) []string {
	cells := []string{fixed(s.Median), fixed(s.Mean), fixed(s.P90)}
	for _, t := range sortedKeys(s.Reliable) {
		cells = append(cells, percent(s.Reliable[t]))
	}
	return cells
}

// thresholds of the sweep.
func thresholds(r *eval.Report) []string {
	if len(r.Skewness) == 0 {
		return nil
	}
	return sortedKeys(r.Skewness[0].Reliable)
}

func sortedKeys(m map[string]float64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (p *recordingTables) approximation() {
	s := p.r.Summary
	p.section("Approximation", "sum_c with MI over the inputs: Pearson %s, Spearman %s. Inflation, the ratio of their means: %s, of "+
		"which %s is the divisor of variances. |sum_c - MI| with the largest skewness: Spearman %s.", fixed(s.Pearson),
		fixed(s.Spearman), fixed(s.Inflation), fixed(s.Factor), fixed(s.ResidualSkewness))
	var rows [][]string
	for _, b := range p.r.Residual {
		upTo := "any"
		if b.UpTo != nil {
			upTo = shortNumber(*b.UpTo)
		}
		rows = append(rows, []string{fmt.Sprintf("%s to %s", shortNumber(b.Above), upTo), strconv.Itoa(b.N), shortNumber(b.Mean),
			percent(b.Relative)})
	}
	p.table(1, []string{"largest skewness", "inputs", "sum_c - MI", "of MI"}, rows)
}

func (p *recordingTables) profiles() {
	if len(p.r.Profiles.Raw) == 0 {
		return
	}
	p.section("Epistemic profiles", "Mean C_k of the class in the column over the inputs of the true class in the row: nats x 1000, "+
		"and then as a share of the sum of C_k of each input.")
	p.grid("true", func(i, j int) string { return thousandths(p.r.Profiles.Raw[i][j]) })
	p.grid("true", func(i, j int) string { return percent(p.r.Profiles.Normalised[i][j]) })
}

// thousandths of nats.
func thousandths(v float64) string { return strconv.FormatFloat(1000*v, 'f', 2, 64) }

func (p *recordingTables) signatures() {
	if len(p.r.Signatures) == 0 {
		return
	}
	p.section("Error signatures", "Mean MI and C_k, nats x 1000, by true and predicted class: critical misses first, then other errors, "+
		"then what is right, the most inputs first.")
	number := make(map[string]int)
	for k, c := range p.r.Classes {
		number[c.Name] = k
	}
	rank := func(s eval.Signature) int {
		is, as := p.r.Classes[number[s.True]], p.r.Classes[number[s.Predicted]]
		switch {
		case is.Critical && !as.Critical:
			return 0
		case s.True != s.Predicted:
			return 1
		}
		return 2
	}
	all := slices.SortedStableFunc(slices.Values(p.r.Signatures), func(a, b eval.Signature) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.N, a.N))
	})
	header := []string{"true -> predicted", "", "inputs", "MI"}
	each := len(p.r.Classes) <= tableClasses
	if each {
		header = append(header, p.contributions()...)
	}
	header = append(header, "dominant")
	if !each {
		header = append(header, "its C")
	}
	var rows [][]string
	for _, s := range all[:min(mostSignatures, len(all))] {
		cells := []string{shortName(s.True) + " -> " + shortName(s.Predicted), []string{"missed", "wrong", "right"}[rank(s)],
			strconv.Itoa(s.N), thousandths(s.MI)}
		if each {
			for _, c := range s.C {
				cells = append(cells, thousandths(c))
			}
		}
		cells = append(cells, shortName(s.Dominant))
		if !each {
			cells = append(cells, thousandths(s.C[number[s.Dominant]]))
		}
		rows = append(rows, cells)
	}
	p.table(2, header, rows)
	if left := len(all) - len(rows); left > 0 {
		p.text("%d more pairs are left out here: --format json has all.", left)
	}
}

// contributions are the headers of columns for the C_k of each class: by name, or
// by number where that would be too wide.
func (p *recordingTables) contributions() []string {
	var names, numbers []string
	for k, c := range p.r.Classes {
		names = append(names, "C "+shortName(c.Name))
		numbers = append(numbers, "C "+strconv.Itoa(k))
	}
	const beside = 3*nameWidth + 20 // the other columns
	if fits(names, beside) {
		return names
	}
	return numbers
}

func (p *recordingTables) confusion() {
	c := p.r.Confusion
	if c == nil {
		return
	}
	p.section("Epistemic confusion", "Mean pair term of two classes, nats x 1000.")
	p.grid("", func(i, j int) string { return thousandths(c.Matrix[i][j]) })
	if p.r.Summary.Critical == 0 && c.CrossBoundary == 0 {
		return
	}
	p.text("Means of pairs: safe with critical %s, within safe %s, within critical %s.", thousandths(c.CrossBoundary),
		thousandths(c.WithinSafe), thousandths(c.WithinCritical))
	if c.CrossToSafe > 0 {
		p.text("Safe with critical is %s times within safe.", shortNumber(c.CrossToSafe))
	}
	if c.CrossToCritical > 0 {
		p.text("Safe with critical is %s times within critical.", shortNumber(c.CrossToCritical))
	}
}

func (p *recordingTables) uncertainty() {
	p.section("Class uncertainty", "Mean predictive entropy of the inputs of a class (Baltaci et al.), in nats and as a share of the sum over "+
		"classes; and the share of all inputs in which the class has the largest C_k.")
	shown := p.shown(mostClassRows)
	var rows [][]string
	for _, k := range shown {
		c := p.r.Classes[k]
		rows = append(rows, []string{shortName(c.Name), strconv.Itoa(c.Support), fixed(c.Uncertainty),
			percent(c.UncertaintyShare), percent(p.r.Dominant[k])})
	}
	p.table(1, []string{"class", "inputs", "nats", "share", "dominant in"}, rows)
	p.cut(shown)
}

func (p *recordingTables) operatingPoint() {
	o := p.r.Policy
	if o == nil {
		return
	}
	p.section("The policy at its thresholds", "Model %s, scope %s, hash %s.", o.Model, o.Scope, o.Hash)
	if o.Observes {
		p.text("It has no thresholds: it observes, and defers nothing.")
	}
	p.text("Retained %d of %d inputs: coverage %s. The gate hands %s of the inputs to the fallback score.", o.Retained, p.r.Summary.Inputs,
		fixed(o.Coverage), percent(o.ByFallback))
	p.text("Critical FNR among the retained: %s (%d of %d; 95%% interval %s to %s). Critical error %s, accuracy %s, macro F1 %s.",
		fixed(o.CriticalFNR), o.CriticalMissed, o.CriticalRetained, fixed(o.CriticalFNRInterval[0]), fixed(o.CriticalFNRInterval[1]),
		fixed(o.CriticalError), fixed(o.Accuracy), fixed(o.MacroF1))
	p.text("Share of all critical inputs that is retained and missed: %s (%d of %d; 95%% interval %s to %s). Deferred: %s.",
		fixed(o.MissShare), o.CriticalMissed, p.r.Summary.Critical, fixed(o.MissShareInterval[0]), fixed(o.MissShareInterval[1]),
		percent(o.CriticalDeferredShare))
	if c := o.Certificate; c != nil {
		p.text("%s", certificateSays(c))
	}
	if len(o.Differs) > 0 {
		p.text("This recording is not what the policy was calibrated for, or no evidence: %s.", strings.Join(o.Differs, "; "))
	}
}

// certificateSays is whether a certificate held.
func certificateSays(c *eval.CertificateCheck) string {
	text := fmt.Sprintf("The certificate (%s, at most %s", c.Kind, fixed(c.Target))
	if c.Confidence > 0 {
		text += fmt.Sprintf(", confidence %v", c.Confidence)
	}
	observed, pValue := fixed(c.Observed), fixed(c.PValue)
	switch {
	case c.Held == nil:
		return text + ") has nothing to hold it against here: it bounds a share of no inputs."
	case !*c.Held:
		return text + fmt.Sprintf(") did not hold here (p %s): %s was observed.", pValue, observed)
	case c.Observed > c.Target:
		return text + fmt.Sprintf("): %s was observed here, above the target, which chance allows (p %s).", observed, pValue)
	}
	return text + fmt.Sprintf(") held here (p %s): %s was observed.", pValue, observed)
}
