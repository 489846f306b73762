package report

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// TestTables compares tables with the report made by hand.
func TestTables(t *testing.T) {
	t.Parallel()
	r, table, labels := byHand()
	d := write(t, r, table, labels)
	d.expectRows(t, "The paper's figures at 70% coverage (any input)",
		"ranking|critical FNR|95% bootstrap interval|missed of retained|critical error|accuracy|macro-F1",
		"c_crit_max|14.3%|4.1% to 25.2%|2 of 14|32.0%|87.1%|0.6220",
		"cbec|7.7%|1.1% to 17.2%|1 of 13|33.0%|88.1%|0.6320",
		"policy|16.7%|6.1% to 28.2%|2 of 12|30.0%|85.1%|0.6020",
		"mi|27.3%|9.1% to 45.2%|3 of 11|31.0%|86.1%|0.6120",
	)
	d.expectRows(t, "AUSC of critical FNR over all coverages (only inputs called safe)",
		"ranking|AUSC|mean|sd|95% bootstrap interval|where defined|95% bootstrap interval|wins",
		"mi|0.5310|0.5410|0.0090|0.5120 to 0.5510|0.0300|0.0120 to 0.0510|100.0%",
	)
	d.expectRows(t, "Areas of errors over all coverages (only inputs called safe)",
		"ranking|AUSC critical error|AUSC error rate|AURC|AUGRC|joint", "mi|0.5410|0.0510|0.0610|0.0710|0.0810")
	d.expectRows(t, "Every ranking at 300 deferrals per 1,000 inputs (any input)", // the model alone, simple scores, the others
		"ranking|missed|critical miss rate|exact 95% interval|critical calls kept|false ones|accuracy",
		"no review|4 of 20|20.0%|4.0% to 28.0%|400|175|80.0%",
		"mi|3 of 20|15.0%|3.0% to 26.0%|125|50|86.1%",
		"cbec|1 of 20|5.0%|1.0% to 22.0%|175|100|88.1%",
		"c_crit_max|2 of 20|10.0%|2.0% to 24.0%|150|75|87.1%",
		"policy|2 of 20|10.0%|2.0% to 24.0%|100|25|85.1%",
	)
	d.expectRows(t, "Missed of each critical class at 325 reviews per 1,000 inputs",
		"class|inputs|without review|missed by this policy|rate|exact 95% interval|missed by mutual information, any input|rate|exact 95% interval",
		"suspect|112|3|1|0.9%|0.3% to 5.8%|3|2.7%|0.3% to 5.8%",
		"pathologic|8|1|1|||0||", // too few for more than counts
	)
	d.expectRows(t, "How often the row's AUSC of critical FNR is lower than the column's (any input)",
		"row lower than|cbec|mi", "cbec||86.0", "mi|13.0|")
	d.expectRows(t, "Inputs by true class (rows) and predicted class (columns)",
		`true \ predicted|normal|suspect|pathologic`, "normal|18|1|1", "suspect|3|8|1", "pathologic|1|1|6")
	d.expectRows(t, "Mean contribution (0.001 nats)",
		`true \ class|normal|suspect|pathologic`, "normal|5.00|15.0|12.0", "suspect|39.0|22.0|28.0", "pathologic|59.0|31.0|33.0")
	d.expectRows(t, "Mean pair term (0.001 nats)",
		`class \ class|normal|suspect|pathologic`, "normal|0|7.10|8.30", "suspect|7.10|0|2.40", "pathologic|8.30|2.40|0")
	d.expectRows(t, "Classification report",
		"class|group|inputs|predicted|precision|recall|F1|class uncertainty|dominant in",
		"normal|safe|20|22|0.8180|0.9000|0.8570|0.1420|15.5%",
		"suspect|critical|12|10|0.8000|0.6670|0.7270|0.5590|66.6%",
		"pathologic|critical|8|8|0.7500|0.7510|0.7520|0.4470|17.9%",
		"macro average||40|40|0.7893|0.7727|0.7787||",
		"weighted average||40|40|0.7990|0.8003|0.7970||")
	d.expectRows(t, "Sum of contributions less mutual information, by the largest skewness of the input",
		"largest skewness|inputs|mean difference (nats)|relative to mean MI", "0 to 0.3|17|0.0021|3.1%", "over 0.3|23|-0.0132|-34.2%")
	d.expectRows(t, "Signatures of every true and predicted class",
		"true|predicted|kind|dominant|inputs|MI (nats)|normal|suspect|pathologic",
		"suspect|normal|missed|suspect|3|0.0770|0.0200|0.0520|0.0220",
		"pathologic|normal|missed|pathologic|1|0.1620|0.0390|0.0320|0.1180",
		"normal|suspect|false alarm|normal|1|0.0710|0.0410|0.0190|0.0170",
		"pathologic|suspect|other error|pathologic|1|0.1010|0.0450|0.0210|0.0490",
		"normal|normal|right|suspect|18|0.0210|0.0030|0.0140|0.0110")
	d.expectRows(t, "Files and settings", "what|value",
		"software|ckd test", "passes|p.npy", "SHA-256 of the passes|aa11", "labels|l.npy", "SHA-256 of the labels|bb22",
		"shape|20 passes, 40 inputs, 3 classes", "kind of rows|probabilities", "variance|sample", "coverage|0.7",
		"bootstrap resamples|9", "seed|7", "reliability threshold (skewness)|0.3", "inputs whose passes hardly differ|6, of which one-hot 5")
	if n := strings.Count(d.text, `<td class="diagonal`); n != 3 {
		t.Errorf("%d cells on the diagonal of the epistemic confusion, expected 3", n)
	}
	// Of 10 critical inputs or more that are retained, at most 3 of 14 are missed.
	d.expect(t, "The upper panel ends at 25%: curves may leave it")
	var ticks []string
	for _, text := range below(d.all("svg")[1], "text") {
		ticks = append(ticks, textOf(text))
	}
	if !slices.Contains(ticks, "25%") || slices.Contains(ticks, "35%") || !slices.Contains(ticks, "critical retained") {
		t.Errorf("the axes have %q", ticks)
	}
	d.expect(t, "A note to the reader.", "The largest median skewness of a critical class is 1.60, over the threshold of 0.3: the paper takes cbec.",
		"correlation of 0.91 (Pearson; Spearman 0.87)", "1.37 times as large", "a factor of 1.05", "largest skewness is -0.29",
		"lowest for normal (0.150) and highest for pathologic (1.70)")
}

// TestCertificates gives each of the outcomes of a certificate.
func TestCertificates(t *testing.T) {
	t.Parallel()
	na := eval.Figure(math.NaN())
	for name, test := range map[string]struct {
		check eval.CertificateCheck
		rows  []string
	}{
		"shown": {
			eval.CertificateCheck{Confidence: 0.9, BoundCheck: eval.BoundCheck{Cases: 30, Misses: 1, Observed: 1. / 30, Verdict: eval.Shown,
				PValue: 0.992, PShown: 0.048, PowerAtDouble: 0.73}},
			[]string{"critical miss rate|shown|15.0%|1 of 30|3.3%|0.048|0.992|0.730"},
		},
		"not contradicted": {
			eval.CertificateCheck{Groups: 90, BoundCheck: eval.BoundCheck{Class: "suspect", Bounds: policy.CriticalFNR, Cases: 40, Misses: 3,
				Observed: 0.075, Verdict: eval.NotContradicted, PValue: 0.951, PShown: 0.13, PowerAtDouble: 0.691}},
			[]string{"critical FNR of suspect|not contradicted|15.0%|3 of 40|7.5%|0.130|0.951|0.691"},
		},
		"no power": {
			eval.CertificateCheck{BoundCheck: eval.BoundCheck{Cases: 1, Misses: 1, Observed: 1, Verdict: eval.NotContradicted, PValue: 0.15, PShown: 1}},
			[]string{"critical miss rate|not contradicted|15.0%|1 of 1|100.0%|1.00|0.150|0"},
		},
		"no double": {
			eval.CertificateCheck{BoundCheck: eval.BoundCheck{Cases: 2, Misses: 1, Observed: 0.5, Verdict: eval.NotContradicted, PValue: 0.7,
				PShown: 0.8, PowerAtDouble: na}},
			[]string{"critical miss rate|not contradicted|15.0%|1 of 2|50.0%|0.800|0.700|n/a"},
		},
		"contradicted, of two": {
			eval.CertificateCheck{
				BoundCheck: eval.BoundCheck{Cases: 20, Misses: 8, Observed: 0.4, Verdict: eval.Contradicted, PValue: 0.012, PShown: 1, PowerAtDouble: 0.39},
				Further:    []eval.BoundCheck{{Bounds: policy.CriticalFNR, Target: 0.2, PValue: 1, PShown: 1, Observed: na, PowerAtDouble: na}},
				Differs:    []string{"30 passes, not 20"},
			},
			[]string{"critical miss rate|contradicted|15.0%|8 of 20|40.0%|1.00|0.012|0.390", "critical FNR|n/a|20.0%|0 of 0|n/a|1.00|1.00|n/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, table, labels := byHand()
			check := test.check
			check.Kind, check.Target = "learn-then-test", 0.15
			if check.Bounds == "" {
				check.Bounds = policy.CriticalMissRate
			}
			r.Policy.Certificate = &check
			d := write(t, r, table, labels)
			if diff := cmp.Diff(test.rows, d.rows(t, "What this recording shows of the certificate")[1:]); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVariants writes pages of all kinds of recordings.
func TestVariants(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	third := func(k int) (critical, safe []int) {
		for c := range k {
			if c%3 == 1 {
				critical = append(critical, c)
			} else {
				safe = append(safe, c)
			}
		}
		return critical, safe
	}
	for _, test := range []struct {
		name       string
		n, k       int
		noCritical bool
		never      bool // no input is critical
		noSafe     bool
		resamples  int
		figures    int // pictures
		want       []string
	}{
		{name: "usual", n: 300, k: 4, resamples: 20, figures: 3, want: []string{"The paper's tables"}},
		{name: "no resamples", n: 300, k: 4, figures: 3},
		{name: "no critical set", n: 300, k: 4, noCritical: true, resamples: 20, figures: 1, want: []string{
			"No class is declared critical", "Errors, as a share of the inputs retained"}},
		{name: "no critical input", n: 300, k: 4, never: true, resamples: 20, figures: 1, want: []string{
			"cannot support a policy", "No input belongs to a critical class."}},
		{name: "no safe set", n: 300, k: 4, noSafe: true, resamples: 20, figures: 3},
		{name: "two classes", n: 300, k: 2, resamples: 20, figures: 3},
		{name: "one input", n: 1, k: 3, resamples: 5, figures: 3},
		{name: "many classes", n: 900, k: 40, resamples: 5, figures: 3, want: []string{"Of the 40 classes, 30 are shown"}},
		{name: "more classes than have matrices", n: 900, k: 200, resamples: 5, figures: 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			passes, labels := synthetic(test.n, test.k)
			spec := decomp.Spec{Classes: test.k}
			if !test.noCritical {
				spec.Critical, spec.Safe = third(test.k)
			}
			if test.noSafe {
				spec.Safe = nil
			}
			if test.never {
				for i := range labels {
					labels[i] = spec.Safe[labels[i]%len(spec.Safe)]
				}
			}
			r, table := evaluate(t, passes, labels, spec, eval.Options{Classes: names(test.k), Bootstrap: test.resamples})
			d := write(t, r, table, labels)
			d.expect(t, test.want...)
			expectText(t, r, table, labels)
			if n := len(d.all("svg")); n != test.figures {
				t.Errorf("%d pictures, expected %d: %q", n, test.figures, d.figures())
			}
			for _, table := range d.all("table") {
				if rows := len(below(table, "tr")); strings.HasPrefix(attribute(table, "class"), "heat") && rows != min(test.k, mostShown)+1 {
					t.Errorf("%s: %d rows", textOf(below(table, "caption")[0]), rows)
				}
			}
			if test.resamples == 0 && strings.Contains(d.text, "95% bootstrap interval") {
				t.Error("there are intervals without resamples")
			}
		})
	}
}

// expectText writes a report as plain text, and expects lines that fit a screen and, however many
// classes there are, the critical one with the most inputs in the table of classes.
func expectText(t *testing.T, r *eval.Report, table *eval.Table, labels []int) {
	t.Helper()
	d, err := Evaluation(r, table, labels, Given{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := document.Text(&out, d); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 101 { // with its end
			t.Errorf("%d columns: %s", n, line)
		}
	}
	critical := slices.DeleteFunc(slices.Clone(r.Classes), func(c eval.Class) bool { return !c.Critical })
	if len(critical) == 0 {
		return
	}
	most := slices.MaxFunc(critical, func(a, b eval.Class) int { return a.Support - b.Support })
	if !regexp.MustCompile(`(?m)^ ` + most.Name + ` +critical `).MatchString(out.String()) {
		t.Errorf("the text has no row of the critical %s", most.Name)
	}
}

// TestRecording compares what the page says of a real recording with an independent implementation
// (ctg-mcdropout.evaluate.json: fnr80 is 34/306, 35/245 and 24/273, acc is 1951/2126).
func TestRecording(t *testing.T) {
	t.Parallel()
	recording, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	text := `models: [{name: fetal-health, classes: [normal, suspect, pathologic], critical: [suspect, pathologic],
		primary: {score: c_crit_max, threshold: 0.052}, fallback: {score: cbec, threshold: 0.023}}]`
	set, err := policy.Parse(policy.File{Name: "p.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	o := eval.Options{Classes: recording.Classes, Bootstrap: 50, Policy: set.All()[0]}
	p := recording.Passes
	passes := eval.Recording{Name: p.Name, Classes: p.K, Passes: decomp.Tensor{Passes: p.S, Inputs: p.N, Float32: p.Float32}}
	if o.Decisions, err = eval.Decide(t.Context(), passes, o.Policy, nil); err != nil {
		t.Fatal(err)
	}
	spec := decomp.Spec{Classes: 3, Critical: recording.Critical, Safe: recording.Safe}
	r, table := evaluate(t, passes, recording.Labels, spec, o)
	d := write(t, r, table, recording.Labels)
	d.expect(t,
		"The model is right on 1,951 of 2,126 inputs (91.8%).",
		"retains 306 critical inputs and misses 34 (11.1%); mutual information misses 35 of 245 (14.3%).", "24 of 273 (8.8%)",
	)
	want := []string{
		"Critical inputs missed against reviews",
		"Confusion matrix: what the model calls each class",
		"Median skewness of each class, by true class",
		"Epistemic profiles: about which classes the model is ignorant, by true class",
		"Epistemic confusion: between which classes the model cannot decide",
	}
	for _, scope := range []string{"any input", "only inputs called safe"} {
		want = append(want, "Critical inputs missed, as a share of those retained, at every coverage ("+scope+")")
	}
	if d := cmp.Diff(want, d.figures()); d != "" {
		t.Errorf("figures: -want +got:\n%s", d)
	}
	style := textOf(d.all("style")[0])
	for _, rule := range []string{"@media print", "break-before: page", "prefers-color-scheme: dark"} {
		if !strings.Contains(style, rule) {
			t.Errorf("the style has no %q", rule)
		}
	}
}

// TestEscapes gives hostile names to everything that users can name.
func TestEscapes(t *testing.T) {
	t.Parallel()
	const name = `<script>alert(1)</script>&"`
	r, table, labels := byHand()
	r.Classes[1].Name, r.Classes[2].Name = name, `" onload="alert(1) style="fill:#408080 }</style> ]]> {{.Title}}`+"\n\x00\xff"
	for i := range r.Signatures {
		r.Signatures[i].True, r.Signatures[i].Predicted = name, r.Classes[0].Name
	}
	for i := range r.Skewness {
		r.Skewness[i].Class = r.Classes[i].Name
	}
	r.Source.Software, r.Source.Kind, r.Source.Variance = name, name, name
	r.Source.Passes, r.Source.Labels = eval.File{Name: name, SHA256: name}, eval.File{Name: name, SHA256: name}
	r.Notes = []string{name}
	r.Policy.Model, r.Policy.Hash, r.Policy.Certificate.Kind = name, name, name
	r.Policy.Certificate.Class, r.Policy.Certificate.Differs = name, []string{name}
	d := write(t, r, table, labels) // which has no <script> and no onload
	d.expect(t, "Evidence for deferral: "+name, "critical FNR of "+name, name+" called normal")
	if got := textOf(d.all("title")[0]); got != "Evidence for deferral: "+name {
		t.Errorf("the title is %q", got)
	}
}

// TestRefusals gives reports that do not fit their table, and a writer that fails.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r, table, labels := byHand()
	if _, err := Evaluation(r, table, labels[1:], Given{}); err == nil || !strings.Contains(err.Error(), "39 labels, expected one for each of the 40") {
		t.Errorf("fewer labels: %v", err)
	}
	few := *r
	few.Classes = few.Classes[:2]
	if _, err := Evaluation(&few, table, labels, Given{}); err == nil || !strings.Contains(err.Error(), "2 classes, expected the 3") {
		t.Errorf("fewer classes: %v", err)
	}
	full := errors.New("disk full")
	d, err := Evaluation(r, table, labels, Given{})
	if err != nil {
		t.Fatal(err)
	}
	for name, render := range map[string]func(io.Writer, *document.Document) error{"HTML": document.HTML, "text": document.Text} {
		if err := render(failing{full}, d); !errors.Is(err, full) {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// byHand returns a report in which no two numbers are alike where one could be taken for the other.
func byHand() (*eval.Report, *eval.Table, []int) {
	matrix := [][]int{{18, 1, 1}, {3, 8, 1}, {1, 1, 6}}
	table := &eval.Table{Inputs: 40, Passes: 20, K: 3}
	table.Scores[decomp.MI] = make([]float64, 40)
	var labels []int
	for i, row := range matrix {
		for j, n := range row {
			for range n {
				at := float64(len(labels))
				table.Scores[decomp.MI][len(labels)] = at / 100
				labels, table.Predicted = append(labels, i), append(table.Predicted, j)
				table.SumC = append(table.SumC, at/90)
				table.Skewness = append(table.Skewness, at/200, at/20, at/10)
			}
		}
	}
	na := eval.Figure(math.NaN())
	misses := func(deferred, called, falsely, suspect, pathologic float64) eval.At {
		missed := suspect + pathologic
		return eval.At{
			CriticalMissed: missed, CriticalMissRate: eval.Figure(missed) / 20,
			CriticalMissRateInterval: &[2]float64{missed / 100, (missed + 10) / 50},
			CalledCritical:           called, FalseCalls: falsely,
			Per1000: eval.Per1000{Deferred: 25 * deferred, Reviews: 25 * deferred, CalledCritical: 25 * called,
				FalseCalls: 25 * falsely, Missed: 25 * missed},
			CriticalClasses: []eval.ClassMisses{
				{Class: "suspect", Inputs: 112, Missed: suspect, CriticalMissRate: eval.Figure(suspect) / 112,
					CriticalMissRateInterval: &[2]float64{0.003, 0.058}},
				{Class: "pathologic", Inputs: 8, Missed: pathologic, CriticalMissRate: na},
			},
			WorstClass: "suspect",
		}
	}
	row := func(name string, scope policy.Scope, nth eval.Figure, retained, missed float64, mean, low, high, wins eval.Figure) eval.Row {
		at := misses(12, float64(nth)+4, float64(nth)+1, missed, 0)
		at.Coverage, at.Retained, at.CriticalRetained = 0.7, 28, retained
		at.CriticalFNR, at.CriticalError = eval.Figure(share(missed, retained)), 0.30+nth/100
		at.Accuracy, at.MacroF1 = 0.851+nth/100, 0.602+nth/100
		at.CriticalDeferredShare = 1 - eval.Figure(retained)/20 + 0.005
		row := eval.Row{
			Name: name, Scope: scope, At: at,
			AUSC: eval.AUSC{CriticalFNR: mean - 0.001, CriticalError: 0.041, ErrorRate: 0.051}, AUSCFrom: 0.1,
			AUSCPaper: eval.AUSC{CriticalFNR: mean + 0.5, CriticalError: 0.541, ErrorRate: 0.051},
			AURC:      0.061, AUGRC: 0.071, JointArea: 0.081,
			BootstrapPaper: eval.Interval{Mean: mean + 0.51, SD: 0.009, Low: low + 0.5, High: high + 0.5},
			Bootstrap: eval.Bootstrap{
				Interval: eval.Interval{Mean: mean, SD: 0.008, Low: low, High: high}, WinShare: wins,
				Samples: []eval.Figure{low, mean, na, mean, high, 2 * high},
			},
		}
		row.BootstrapAt.CriticalError = eval.Interval{Low: 0.2 + nth/100, High: 0.4 + nth/100}
		row.BootstrapAt.Accuracy = eval.Interval{Low: 0.792 + nth/100, High: 0.923 + nth/100}
		return row
	}
	without := misses(0, 16, 7, 3, 1)
	without.Accuracy = 0.8
	r := &eval.Report{
		Source: eval.Source{
			Software: "ckd test", Passes: eval.File{Name: "p.npy", SHA256: "aa11"}, Labels: eval.File{Name: "l.npy", SHA256: "bb22"},
			Kind: "probabilities", Variance: "sample", Coverage: 0.7, Bootstrap: 9, Seed: 7, Reliability: 0.3,
		},
		Summary: eval.Summary{
			Inputs: 40, Passes: 20, Classes: 3, Critical: 20, Missed: 4, Accuracy: 0.8, MacroF1: 0.779, QWK: 0.711,
			Pearson: 0.91, Spearman: 0.87, Inflation: 1.37, Factor: 1.05, ResidualSkewness: -0.29,
			FallbackShare: 0.615, AllReliable: 0.125, Degenerate: 6, Saturated: 5,
			WithoutDeferral: without,
		},
		Classes: []eval.Class{
			{Name: "normal", Safe: true, Support: 20, Predicted: 22, Precision: 0.818, Recall: 0.9, F1: 0.857, Uncertainty: 0.142, UncertaintyShare: 0.124},
			{Name: "suspect", Critical: true, Support: 12, Predicted: 10, Precision: 0.8, Recall: 0.667, F1: 0.727, Uncertainty: 0.559, UncertaintyShare: 0.487},
			{Name: "pathologic", Critical: true, Support: 8, Predicted: 8, Precision: 0.75, Recall: 0.751, F1: 0.752, Uncertainty: 0.447, UncertaintyShare: 0.389},
		},
		Matrix: matrix,
		Policies: []eval.Row{
			row("mi", policy.AllInputs, 1, 11, 3, 0.245, 0.211, 0.282, 0.11),
			row("c_crit_max", policy.AllInputs, 2, 14, 2, 0.123, 0.091, 0.162, 0.36),
			row("cbec", policy.AllInputs, 3, 13, 1, 0.134, 0.102, 0.173, 0.53),
			row("policy", policy.AllInputs, 0, 12, 2, 0.145, 0.113, 0.184, 0.21),
			row("mi", policy.PredictedSafe, -1, 19, 2, 0.031, 0.012, 0.051, 1),
		},
		Pairwise: []eval.Pairwise{
			{Row: "mi", Column: "cbec", Scope: policy.AllInputs, P: 0.13}, {Row: "cbec", Column: "mi", Scope: policy.AllInputs, P: 0.86},
		},
		Policy: &eval.OperatingPoint{
			Model: "heart", Hash: "cc33", Scope: policy.PredictedSafe,
			At: eval.At{Coverage: 0.675, Retained: 27, CriticalFNR: 2. / 9, CriticalRetained: 9, CriticalMissed: 2, Accuracy: 0.89,
				MacroF1: 0.81, CriticalError: 0.33, CriticalDeferredShare: 0.55, CriticalMissRate: 0.1,
				CriticalMissRateInterval: &[2]float64{0.012, 0.317}, CalledCritical: 10, FalseCalls: 6,
				Per1000:         eval.Per1000{Deferred: 325, Reviews: 325, CalledCritical: 250, FalseCalls: 150, Missed: 50},
				CriticalClasses: misses(13, 10, 6, 1, 1).CriticalClasses, WorstClass: "suspect"},
			CriticalFNRInterval: &[2]float64{0.028, 0.6}, ByFallback: 0.425,
			Certificate: &eval.CertificateCheck{
				Kind: "learn-then-test", Confidence: 0.95,
				BoundCheck: eval.BoundCheck{Bounds: policy.CriticalFNR, Target: 0.15, Cases: 9, Misses: 2, Observed: 2. / 9,
					Verdict: eval.NotContradicted, PValue: 0.401, PShown: 0.859, PowerAtDouble: 0.27},
				Differs: []string{"30 passes, not 20", "other critical classes"},
			},
		},
		Gain: &eval.RuleGain{Rule: "policy", Scope: policy.PredictedSafe, Gain: eval.Gain{Without: 4, Missed: 2, Deferred: 13, Eligible: 24,
			Compared: 1, P: 0.031, Supports: true, Needed: 19}},
		Residual: []eval.ResidualBin{
			{UpTo: new(float64), N: 17, Mean: 0.0021, Relative: 0.031}, {Above: 0.3, N: 23, Mean: -0.0132, Relative: -0.342},
		},
		PaperRule: &eval.PaperRule{MedianCriticalSkewness: 1.6, Score: "cbec", BestAUSC: "c_crit_max", CostAUSC: 0.011,
			BestCriticalFNR: "cbec"},
		Profiles: eval.Profiles{
			N:          []int{20, 12, 8},
			Raw:        [][]eval.Figure{{0.005, 0.015, 0.012}, {0.039, 0.022, 0.028}, {0.059, 0.031, 0.033}},
			Normalised: [][]eval.Figure{{0.06, 0.76, 0.18}, {0.47, 0.25, 0.28}, {0.27, 0.53, 0.2}},
		},
		Signatures: []eval.Signature{
			{True: "normal", Predicted: "normal", N: 18, MI: 0.021, C: []float64{0.003, 0.014, 0.011}, Dominant: "suspect"},
			{True: "normal", Predicted: "suspect", N: 1, MI: 0.071, C: []float64{0.041, 0.019, 0.017}, Dominant: "normal"},
			{True: "pathologic", Predicted: "suspect", N: 1, MI: 0.101, C: []float64{0.045, 0.021, 0.049}, Dominant: "pathologic"},
			{True: "pathologic", Predicted: "normal", N: 1, MI: 0.162, C: []float64{0.039, 0.032, 0.118}, Dominant: "pathologic"},
			{True: "suspect", Predicted: "normal", N: 3, MI: 0.077, C: []float64{0.02, 0.052, 0.022}, Dominant: "suspect"},
		},
		Confusion: &eval.Confusion{
			Matrix:        [][]float64{{0, 0.0071, 0.0083}, {0.0071, 0, 0.0024}, {0.0083, 0.0024, 0}},
			CrossBoundary: 0.0071, WithinSafe: na, CrossToSafe: na, WithinCritical: 0.0024, CrossToCritical: 2.96,
		},
		Dominant: []float64{0.155, 0.666, 0.179},
		Notes:    []string{"A note to the reader."},
	}
	*r.Residual[0].UpTo = 0.3
	for i, at := range [][2]eval.Figure{{0.091, 0.452}, {0.041, 0.252}, {0.011, 0.172}, {0.061, 0.282}, {0.021, 0.192}} {
		r.Policies[i].BootstrapAt.CriticalFNR = eval.Interval{Low: at[0], High: at[1]}
	}
	for k, class := range r.Classes {
		s := eval.Skewness{Class: class.Name, SkewnessOf: eval.SkewnessOf{
			Median: []eval.Figure{0.15, 1.6, 1.7}[k], Mean: 0.2, P90: 3, Reliable: map[string]eval.Figure{"0.1": 0.1, "0.2": 0.2, "0.3": 0.3, "0.5": 0.5},
		}}
		for j, of := range r.Classes {
			s.ByTrue = append(s.ByTrue, eval.SkewnessByTrue{True: of.Name, N: of.Support,
				SkewnessOf: eval.SkewnessOf{Median: [][]eval.Figure{{0.1, 0.4, 2.2}, {0.3, 0.5, 0.6}, {0.7, 0.8, 0.9}}[k][j]}})
		}
		r.Skewness = append(r.Skewness, s)
	}
	for c := 1; c <= 20; c++ {
		r.Curves.Coverage = append(r.Curves.Coverage, float64(c)/20)
		r.Curves.Retained = append(r.Curves.Retained, 2*c)
	}
	for _, row := range r.Policies {
		curve := eval.Curve{Name: row.Name, Scope: row.Scope}
		for c := 1; c <= 20; c++ {
			curve.CriticalRetained = append(curve.CriticalRetained, float64(c-1))
			curve.CriticalMissed = append(curve.CriticalMissed, float64(c/5))
			curve.Wrong = append(curve.Wrong, float64(c/3))
			curve.CalledCritical = append(curve.CalledCritical, float64(c/2))
		}
		r.Curves.Rows = append(r.Curves.Rows, curve)
	}
	return r, table, labels
}

// synthetic returns passes of n inputs and k classes, with labels that the model predicts right
// more often than not.
func synthetic(n, k int) (eval.Recording, []int) {
	const s = 6
	random := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	data, labels := make([]float64, s*n*k), make([]int, n)
	for i := range n {
		labels[i] = random.IntN(k)
		base := make([]float64, k)
		for c := range base {
			base[c] = random.ExpFloat64()
		}
		base[labels[i]] += 3
		for p := range s {
			row, sum := data[(p*n+i)*k:(p*n+i+1)*k], 0.0
			for c := range row {
				row[c] = base[c] * random.ExpFloat64()
				sum += row[c]
			}
			for c := range row {
				row[c] /= sum
			}
		}
	}
	return eval.Recording{
		Name: "synthetic.npy", Classes: k, Passes: decomp.Tensor{Passes: s, Inputs: n, Float64: data},
	}, labels
}

func evaluate(t *testing.T, p eval.Recording, labels []int, spec decomp.Spec, o eval.Options) (*eval.Report, *eval.Table) {
	t.Helper()
	table, err := eval.NewTable(t.Context(), p, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Coverage, o.Seed = 0.8, 42
	r, err := eval.Evaluate(t.Context(), table, labels, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, table
}
