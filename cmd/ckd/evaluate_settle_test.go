package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/report"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle/learn"
)

// settledPolicy decides by c_crit_max alone, and retains about 80% of the MC-dropout
// recording of fetal hearts.
const settledPolicy = `
models:
  - name: hearts
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    gate: never
    passes: {fewest: 2, expected: 30}
    primary: {score: c_crit_max, threshold: 0.0435}
    fallback: {score: cbec}
`

// drawing are the flags for the MC-dropout recording.
func drawing(t *testing.T, more ...string) []string {
	return append([]string{"evaluate", "settle", "--policy", writeFile(t, "p.yaml", settledPolicy),
		"--passes", recordings + "ctg-mcdropout.passes.npy", "--labels", recordings + "ctg-mcdropout.labels.npy"}, more...)
}

// fewHearts are those for the first inputs of it, in files of their own.
func fewHearts(t *testing.T, more ...string) []string {
	const n = 500
	passes, err := record.ReadPasses(recordings+"ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(recordings + "ctg-mcdropout.labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	for s := range passes.S {
		for i := range n {
			values = passes.Row(values, s, i)
		}
	}
	truth := make([]int64, n)
	for i := range truth {
		truth[i] = int64(labels[i])
	}
	return append(drawing(t, "--passes", writeNpy(t, "<f4", []int{passes.S, n, passes.K}, values), "--labels", handLabels(t, truth...)),
		more...)
}

func readFrontier(t *testing.T, text string) *report.Frontier {
	t.Helper()
	f := &report.Frontier{}
	if err := json.Unmarshal([]byte(text), f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEvaluateSettle: what holds of every frontier, and of this recording.
func TestEvaluateSettle(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	f := readFrontier(t, runOK(t, drawing(t, "--format", "json")...))
	s := f.Summary
	if s.Inputs != 2126 || s.Passes != 30 || s.LearnedOn != 1063 || s.DrawnOn != 1063 || f.Source.Orders != 8 || f.Source.Ordered {
		t.Errorf("summary %+v of %+v", s, f.Source)
	}
	if s.Deferred < 150 || s.Deferred > 275 || s.HalvesDiffer < 0.05 || s.HalvesDiffer > 0.2 {
		t.Errorf("%d deferred, halves differ in %v, expected about 213 and 0.13", s.Deferred, s.HalvesDiffer)
	}
	if f.Full.Saving != 1 || f.Full.MeanPasses != 30 || f.Full.Disagreement != 0 || f.Full.Disagreements != 0 || f.Full.Released != 0 {
		t.Errorf("all passes: %+v", f.Full)
	}
	var names []string
	for _, m := range f.Methods {
		names = append(names, m.Name)
		for i := range m.Points {
			holdPoint(t, m.Name, f, &m.Points[i])
		}
		if len(m.At) != 6 || m.At[3].Disagreement != 0.01 || !m.At[3].Reached {
			t.Errorf("%s at %+v", m.Name, m.At)
		}
	}
	if want := []string{report.LearnedRule, report.ScoreOnlyRule, report.FewerPasses}; !slices.Equal(names, want) {
		t.Errorf("methods %v, expected %v", names, want)
	}
	naive := f.Method(report.FewerPasses)
	if len(naive.Points) != 28 {
		t.Fatalf("%d points of fewer passes, expected one for each of 29 to 2", len(naive.Points))
	}
	for i, p := range naive.Points {
		if want := 29 - i; p.MeanPasses != float64(want) || p.Saving != 30/float64(want) {
			t.Errorf("%d passes for every input: mean %v, saving %v", want, p.MeanPasses, p.Saving)
		}
	}
	// Over 20 halves, 2.1 and 1.06 are saved at 1%; as many passes for all decide 7% otherwise.
	learned := f.Method(report.LearnedRule).At[3]
	if learned.Saving < 1.8 || learned.Saving > 2.5 || naive.At[3].Saving > 1.25 || learned.FewerPasses < 0.05 || learned.FewerPasses > 0.1 {
		t.Errorf("at 1%%: %+v, fewer passes %+v", learned, naive.At[3])
	}
	for _, at := range f.Method(report.LearnedRule).At {
		shares := []float64{0} // by so many passes for every input fewer than 30
		for _, p := range naive.Points {
			shares = append(shares, p.Disagreement)
		}
		fewer := 30 - at.MeanPasses
		ends := []float64{shares[int(fewer)], shares[int(math.Ceil(fewer))]}
		slices.Sort(ends)
		if at.FewerPasses < ends[0] || at.FewerPasses > ends[1] {
			t.Errorf("%v passes for every input decide %v otherwise, expected %v", at.MeanPasses, at.FewerPasses, ends)
		}
	}
	if math.Abs(learned.Saving*learned.MeanPasses-30) > 1e-9 {
		t.Errorf("%v passes save %v", learned.MeanPasses, learned.Saving)
	}
	if f.Rule != nil {
		t.Errorf("a policy without a rule has one: %+v", f.Rule)
	}
}

// holdPoint: figures of a point go together.
func holdPoint(t *testing.T, name string, f *report.Frontier, p *report.FrontierPoint) {
	t.Helper()
	within := func(what string, k, n int, interval [2]float64) {
		t.Helper()
		low, high := binomial.Interval(k, n, 0.95)
		if interval != [2]float64{low, high} {
			t.Errorf("%s: interval %v of %s, expected that of %d of %d", name, interval, what, k, n)
		}
	}
	within("disagreements", p.Disagreements, f.Summary.DrawnOn, p.DisagreementInterval)
	if p.Critical == nil {
		t.Fatalf("%s: no critical figures", name)
	}
	within("misses", p.Critical.Missed, p.Critical.Retained, p.Critical.FNRInterval)
	if p.Saving < 1 || math.Abs(p.Saving*p.MeanPasses-30) > 1e-9 || p.Released > 1 || p.Disagreement > 1 {
		t.Errorf("%s: %+v", name, p)
	}
	// The mean over orders and the count of one are of the same inputs.
	if apart := math.Abs(p.Disagreement - float64(p.Disagreements)/float64(f.Summary.DrawnOn)); apart > 0.02 {
		t.Errorf("%s: %v over all orders, %d of %d in the first", name, p.Disagreement, p.Disagreements, f.Summary.DrawnOn)
	}
}

// TestEvaluateSettleForms: the flag is the command; the same seed gives the same.
func TestEvaluateSettleForms(t *testing.T) {
	t.Parallel()
	args := fewHearts(t, "--format", "json")
	want := runOK(t, args...)
	flag := slices.Concat([]string{"evaluate"}, args[2:4], []string{"--settle"}, args[4:])
	if got := runOK(t, flag...); got != want {
		t.Error("ckd evaluate --settle says something else than ckd evaluate settle")
	}
	if got := runOK(t, append(args, "--seed", "7")...); got == want {
		t.Error("another seed gives the same")
	}
	for _, args := range [][]string{{"evaluate", "ood", "--settle"}, {"calibrate", "--settle"}, {"evaluate"}, nil} {
		if got := settleForm(args); !slices.Equal(got, args) {
			t.Errorf("%q became %q", args, got)
		}
	}
}

// TestEvaluateSettleLayouts: the same passes in another layout and width say the same.
func TestEvaluateSettleLayouts(t *testing.T) {
	t.Parallel()
	args := fewHearts(t, "--format", "json")
	passes, err := record.ReadPasses(valueOf(args, "--passes"), record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	for n := range passes.N {
		for s := range passes.S {
			values = passes.Row(values, s, n)
		}
	}
	turned := writeNpy(t, "<f8", []int{passes.N, passes.S, passes.K}, values)
	want := readFrontier(t, runOK(t, args...))
	got := readFrontier(t, runOK(t, append(args, "--passes", turned, "--layout", "nsk")...))
	if !slices.ContainsFunc(got.Notes, func(n string) bool { return strings.Contains(n, "narrowed to float32") }) {
		t.Errorf("no note on float64 in %q", got.Notes)
	}
	got.Source, got.Notes = want.Source, want.Notes
	if !reflect.DeepEqual(got, want) {
		t.Error("another layout gives another frontier")
	}
}

// valueOf a flag; the last one counts.
func valueOf(args []string, flag string) string {
	args = slices.Clone(args)
	slices.Reverse(args)
	return args[slices.Index(args, flag)-1]
}

// TestEvaluateSettleRule: the policy's own rule is drawn, or it is said why not.
func TestEvaluateSettleRule(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	path := writeFile(t, "p.yaml", settledPolicy)
	args := fewHearts(t, "--format", "json")
	p := readPolicy(t, path)
	file, err := hashFile(valueOf(args, "--passes"))
	if err != nil {
		t.Fatal(err)
	}
	passes, err := record.ReadPasses(file.Name, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := learn.Decide(p, settleRecording(passes, nil, false))
	if err != nil {
		t.Fatal(err)
	}
	learning, _ := halves(passes.N, 42)
	rules, err := learn.Learn(d, learning, learn.Options{Orders: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.Settle = &policy.Settle{PolicyHash: p.HashWithoutSettle(), Order: policy.AnyOrder, Rule: *rules.Rules[len(rules.Rules)-4],
		PassesSHA256: file.SHA256, Certificate: policy.SettleCertificate{Disagreement: 0.03, Confidence: 0.9,
			Released: policy.ReleasedShare{AtMost: 0.1}}}
	text := string(p.Marshal())
	settled := writeFile(t, "settled.yaml", text)
	f := readFrontier(t, runOK(t, append(args, "--policy", settled)...))
	if f.Rule == nil || !f.Rule.Flattered || f.Rule.Certified != 0.03 || f.Rule.Confidence != 0.9 {
		t.Fatalf("rule %+v", f.Rule)
	}
	holdPoint(t, "the policy's rule", f, &f.Rule.FrontierPoint)
	if f.Rule.Saving < 1.5 || f.Rule.Disagreement > 0.1 {
		t.Errorf("rule %+v", f.Rule)
	}
	table := runOK(t, append(args, "--policy", settled, "--format", "table")...)
	wantFragment(t, table, "The policy's rule is certified: with confidence 0.9, at most 3% of the inputs")
	wantFragment(t, table, "on this very recording, which flatters it")
	wantFragment(t, runOK(t, append(args, "--policy", settled, "--format", "svg")...), "the policy&#39;s rule (certified: at most 3%; learned here)")

	noted := func(policy, passes, note string) {
		t.Helper()
		f := readFrontier(t, runOK(t, append(args, "--policy", writeFile(t, "p.yaml", policy), "--passes", passes)...))
		if f.Rule != nil || !slices.ContainsFunc(f.Notes, func(n string) bool { return strings.Contains(n, note) }) {
			t.Errorf("rule %+v, notes %q; expected none, and %q", f.Rule, f.Notes, note)
		}
	}
	noted(strings.Replace(text, "0.0435", "0.05", 1), file.Name, "is not in force")
	fewer := writeNpy(t, "<f4", []int{20, passes.N, passes.K}, wide(passes.Float32[:20*passes.N*passes.K]))
	noted(text, fewer, "it is for 30 passes, and there are 20")
	noted(text, fewer, "the policy expects 30 passes; here all 20")
}

func wide(narrow []float32) []float64 {
	v := make([]float64, len(narrow))
	for i, x := range narrow {
		v[i] = float64(x)
	}
	return v
}

// TestEvaluateSettleOrdered: members keep their order, and so there is one.
func TestEvaluateSettleOrdered(t *testing.T) {
	t.Parallel()
	ensemble := strings.Replace(strings.Replace(settledPolicy, "expected: 30", "expected: 5", 1), "0.0435", "0.0079", 1)
	args := []string{"evaluate", "--settle", "--policy", writeFile(t, "p.yaml", ensemble), "--passes",
		recordings + "ctg-ensemble.passes.npy", "--format", "json"}
	f := readFrontier(t, runOK(t, append(args, "--ordered")...))
	if !f.Source.Ordered || f.Source.Orders != 1 || f.Source.LearningOrders != learn.DefaultOrders || f.Source.Labels != nil || f.Full.Critical != nil {
		t.Errorf("source %+v", f.Source)
	}
	for _, p := range f.Method(report.FewerPasses).Points {
		if p.Disagreement != float64(p.Disagreements)/float64(f.Summary.DrawnOn) {
			t.Errorf("in one order, %v and %d of %d", p.Disagreement, p.Disagreements, f.Summary.DrawnOn)
		}
	}
}

func TestEvaluateSettleFormats(t *testing.T) {
	t.Parallel()
	table := runOK(t, fewHearts(t)...)
	for _, fragment := range []string{
		"Model hearts (gate never, scope all): 500 inputs, 30 passes, 3 classes.",
		"Rules are learned on 250 inputs and\ndrawn on 250 others",
		"0.1%  0.25%", "the learned rule ", "the score alone ", "fewer passes for every input ", " all passes     30.00   1.00x      0.00%",
		" fewer passes    2.00  15.00x", "critical FNR", "- the learned rule against fewer passes for every input: it saves no less at every share",
		"another --seed draws another", "exact, by inputs, in the first order of each", "a share of 1% is fewer than 5 of the 250 inputs",
		"labels.npy",
	} {
		wantFragment(t, table, fragment)
	}
	for i, line := range strings.Split(table, "\n") {
		if n := len([]rune(line)); n > sheetWidth+20 {
			t.Errorf("line %d has %d columns", i+1, n)
		}
	}
	out := filepath.Join(t.TempDir(), "frontier.html")
	args := fewHearts(t)
	runOK(t, append(args, "--format", "html", "--out", out)...)
	page, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	wantFragment(t, string(page), "<h1>What deciding early saves: "+valueOf(args, "--passes")+"</h1>")
	wantFragment(t, runOK(t, append(args, "--format", "svg")...), `<svg xmlns="http://www.w3.org/2000/svg"`)
}

func TestEvaluateSettleErrors(t *testing.T) {
	t.Parallel()
	three := threeInputs(t)
	file := func(change ...string) string {
		return "--policy " + writeFile(t, "p.yaml", strings.NewReplacer(change...).Replace(settledPolicy))
	}
	const mcdropout = " --passes " + recordings + "ctg-mcdropout.passes.npy"
	hand := "--policy " + writeFile(t, "p.yaml", handPolicy)
	for _, c := range []struct {
		args, message string
		code          int
	}{
		{"--passes " + three, "expected --policy with the policy whose decisions are to be settled", exitUsage},
		{file(), "missing flags: --passes=FILE", exitUsage},
		{file() + mcdropout + " --coverage 0.8", "unknown flag --coverage", exitUsage},
		{file() + mcdropout + " --format csv", "--format must be one of", exitUsage},
		{file() + mcdropout + " --kind logits", "--kind is logits, but model hearts", exitUsage},
		{file() + mcdropout + " --out " + recordings + "ctg-mcdropout.passes.npy", "is what is read", exitUsage},
		{file(", threshold: 0.0435", "") + mcdropout, "model hearts: nothing can be settled before the last pass: the policy has no thresholds", exitFault},
		{file("c_crit_max", "ova_mi") + mcdropout, "primary.score is ova_mi", exitFault},
		{file("gate: never", "kind: dirichlet\n    gate: never", "fewest: 2, expected: 30", "fewest: 1, expected: 1") + mcdropout,
			"kind is dirichlet", exitFault},
		{hand + " --passes " + three, "has 4 passes, expected more than 4, the fewest after which an input may be decided", exitFault},
		{file("fewest: 2", "fewest: 30") + mcdropout, "has 30 passes, expected more than 30", exitFault},
		{file() + " --passes " + three, "1 inputs deferred and 0 retained to learn from: expected at least 10 of each", exitFault},
		{file() + " --passes " + writeNpy(t, "<f4", []int{1001, 1, 3}, slices.Repeat([]float64{0.5, 0.25, 0.25}, 1001)),
			"has 1001 passes, expected at most 1000", exitFault},
		{file("0.0435", "1000") + mcdropout, "0 inputs deferred and 1063 retained to learn from: expected at least 10 of each", exitFault},
		{file() + mcdropout + " --labels " + handLabels(t, 0, 1), "2 labels, expected 2126", exitFault},
		{file() + " --passes no.npy", "no.npy: no such file", exitFault},
		{"--policy no.yaml" + mcdropout, "no.yaml", exitFault},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, stderr, code := runCommand(t, append([]string{"evaluate", "--settle"}, strings.Fields(c.args)...)...)
			if code != c.code || out != "" {
				t.Errorf("exit code %d, expected %d; output %.80q", code, c.code, out)
			}
			wantFragment(t, stderr, c.message)
		})
	}
}

// docs/evaluate.md has a row for every field of a frontier, and no row for what is none.
func TestDocsNameFieldsOfFrontier(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.\\[\\]]+)` \\| ").FindAllStringSubmatch(docsSection(t,
		"../../docs/evaluate.md", "## The JSON of `ckd evaluate settle`"), -1) {
		told[m[1]] = true
	}
	for _, path := range fieldsOf(reflect.TypeFor[report.Frontier](), "") {
		if !told[path] {
			t.Errorf("nothing on %s", path)
		}
		delete(told, path)
	}
	if len(told) > 0 {
		t.Errorf("tells of %v, which is no field", told)
	}
}

// What is said of the methods is what their figures are, as far as they go.
func TestDominance(t *testing.T) {
	t.Parallel()
	at := func(savings ...float64) (all []report.FrontierAt) { // negative ones are not reached
		for i, s := range savings {
			all = append(all, report.FrontierAt{Disagreement: frontierShares[i], Saving: math.Abs(s), Reached: s > 0})
		}
		return all
	}
	f := &report.Frontier{Methods: []report.FrontierMethod{
		{Name: report.LearnedRule, At: at(1.5, 2, 3, -4)},
		{Name: report.ScoreOnlyRule, At: at(1.6, 2.001, -2.5, 5)},
		{Name: report.FewerPasses, At: at(1, 1, 1, 1)},
	}}
	want := []string{
		"the learned rule against the score alone: it saves no less at 0.25%, less at 0.1% (1.50x against 1.60x)",
		"the learned rule against fewer passes for every input: it saves no less at every share where they can be compared",
	}
	if got := dominance(f); !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestSomeOf(t *testing.T) {
	t.Parallel()
	var points []report.FrontierPoint
	for i := range 100 {
		points = append(points, report.FrontierPoint{MeanPasses: float64(100 - i/2)})
	}
	some := someOf(points)
	if len(some) != mostFrontierRows || some[0].MeanPasses != 100 || some[len(some)-1].MeanPasses != 51 {
		t.Errorf("%d points from %v to %v", len(some), some[0].MeanPasses, some[len(some)-1].MeanPasses)
	}
	for i := range some[1:] {
		if some[i] == some[i+1] {
			t.Error(fmt.Sprint(some[i], " is there twice"))
		}
	}
}
