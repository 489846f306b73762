package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/timed"
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

// drawing returns the flags for the MC-dropout recording.
func drawing(t *testing.T, more ...string) []string {
	return append([]string{"evaluate", "settle", "--policy", writeFile(t, "p.yaml", settledPolicy),
		"--passes", recordings + "ctg-mcdropout.passes.npy", "--labels", recordings + "ctg-mcdropout.labels.npy"}, more...)
}

// fewHearts returns the same flags for the first 500 inputs of the recording, in files of their
// own.
func fewHearts(t *testing.T, more ...string) []string {
	const n = 500
	truth := make([]int64, n)
	for i, label := range readTruth(t, "ctg-mcdropout")[:n] {
		truth[i] = int64(label)
	}
	passes := writePasses(t, "<f4", readPasses(t, "ctg-mcdropout"), record.SNK, n)
	return append(drawing(t, "--passes", passes, "--labels", handLabels(t, truth...)), more...)
}

func readFrontier(t *testing.T, text string) *calibrate.Frontier {
	t.Helper()
	f := &calibrate.Frontier{}
	if err := json.Unmarshal([]byte(text), f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEvaluateSettle checks what holds for every frontier, and the figures of this recording.
func TestEvaluateSettle(t *testing.T) {
	timed.Full(t)
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
	if want := []string{calibrate.LearnedRule, calibrate.ScoreOnlyRule, calibrate.FewerPasses}; !slices.Equal(names, want) {
		t.Errorf("methods %v, expected %v", names, want)
	}
	naive := f.Method(calibrate.FewerPasses)
	if len(naive.Points) != 28 {
		t.Fatalf("%d points of fewer passes, expected one for each of 29 to 2", len(naive.Points))
	}
	for i, p := range naive.Points {
		if want := 29 - i; p.MeanPasses != float64(want) || p.Saving != 30/float64(want) {
			t.Errorf("%d passes for every input: mean %v, saving %v", want, p.MeanPasses, p.Saving)
		}
	}
	// Means over 20 halves: at 1%, the learned rule saves 2.1 times and the naive one 1.06 times;
	// giving every input as few passes as the learned rule uses changes 7% of the decisions.
	learned := f.Method(calibrate.LearnedRule).At[3]
	if learned.Saving < 1.8 || learned.Saving > 2.5 || naive.At[3].Saving > 1.25 || learned.FewerPasses < 0.05 || learned.FewerPasses > 0.1 {
		t.Errorf("at 1%%: %+v, fewer passes %+v", learned, naive.At[3])
	}
	for _, at := range f.Method(calibrate.LearnedRule).At {
		shares := []float64{0} // disagreements when every input has that many passes fewer than 30
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

// holdPoint expects the figures of a point to go together.
func holdPoint(t *testing.T, name string, f *calibrate.Frontier, p *calibrate.FrontierPoint) {
	t.Helper()
	within := func(what string, k, n int, interval *[2]float64) {
		t.Helper()
		low, high := binomial.Interval(k, n, 0.95)
		if n == 0 && interval != nil || n > 0 && (interval == nil || *interval != [2]float64{low, high}) {
			t.Errorf("%s: interval %v of %s, expected that of %d of %d", name, interval, what, k, n)
		}
	}
	within("disagreements", p.Disagreements, f.Summary.DrawnOn, &p.DisagreementInterval)
	if p.Critical == nil {
		t.Fatalf("%s: no critical figures", name)
	}
	within("misses", p.Critical.Missed, p.Critical.Retained, p.Critical.FNRInterval)
	if p.Saving < 1 || math.Abs(p.Saving*p.MeanPasses-30) > 1e-9 || p.Released > 1 || p.Disagreement > 1 {
		t.Errorf("%s: %+v", name, p)
	}
	// The mean over all orders and the count in the first order are about the same inputs.
	if apart := math.Abs(p.Disagreement - float64(p.Disagreements)/float64(f.Summary.DrawnOn)); apart > 0.02 {
		t.Errorf("%s: %v over all orders, %d of %d in the first", name, p.Disagreement, p.Disagreements, f.Summary.DrawnOn)
	}
}

// TestEvaluateSettleGroups checks that groups of one input each change nothing but what is said of
// groups, and that with larger ones halves are of whole groups and intervals wider.
func TestEvaluateSettleGroups(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	args := fewHearts(t, "--format", "json")
	grouped := func(size int) *calibrate.Frontier {
		of := make([]int64, 500)
		for i := range of {
			of[i] = int64(i / size)
		}
		return readFrontier(t, runOK(t, append(args, "--groups", handLabels(t, of...))...))
	}
	want, single := readFrontier(t, runOK(t, args...)), grouped(1)
	if single.Source.Groups != 500 || single.Source.GroupsFile == nil {
		t.Errorf("source %+v, expected 500 groups", single.Source)
	}
	single.Source, single.Notes = want.Source, want.Notes
	if d := cmp.Diff(want, single, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs()); d != "" {
		t.Errorf("groups of one input each: -want +got:\n%s", d)
	}
	fives := grouped(5)
	if fives.Summary.DrawnOn%5 != 0 || fives.Intervals() != "by group" {
		t.Errorf("%d inputs to draw on, intervals %s, expected whole groups of five", fives.Summary.DrawnOn, fives.Intervals())
	}
	for name, at := range map[string]struct {
		k, n int
		got  [2]float64
	}{
		"disagreements": {fives.Methods[0].Points[20].Disagreements, fives.Summary.DrawnOn, fives.Methods[0].Points[20].DisagreementInterval},
		"misses":        {fives.Full.Critical.Missed, fives.Full.Critical.Retained, *fives.Full.Critical.FNRInterval},
	} {
		if low, high := binomial.Interval(at.k, at.n, 0.95); at.got[1]-at.got[0] <= high-low {
			t.Errorf("%s: interval %v by group, expected it wider than [%v, %v]", name, at.got, low, high)
		}
	}
	if _, stderr, code := runCommand(t, append(args, "--groups", handLabels(t, 1, 2))...); code != exitFault || !strings.Contains(stderr, "has 2 groups, expected 500") {
		t.Errorf("two groups: exit code %d, %q", code, stderr)
	}
}

// TestEvaluateSettleForms checks that the flag and the command do the same, and that the same seed
// gives the same result.
func TestEvaluateSettleForms(t *testing.T) {
	timed.Full(t)
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

// TestEvaluateSettleLayouts checks that the same passes in another layout and width give the same
// result.
func TestEvaluateSettleLayouts(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	args := fewHearts(t, "--format", "json")
	passes := readPasses(t, valueOf(args, "--passes"))
	turned := writePasses(t, "<f8", passes, record.NSK, passes.N)
	want := readFrontier(t, runOK(t, args...))
	got := readFrontier(t, runOK(t, append(args, "--passes", turned, "--layout", "nsk")...))
	if !slices.ContainsFunc(got.Notes, func(n string) bool { return strings.Contains(n, "narrowed to float32") }) {
		t.Errorf("no note on float64 in %q", got.Notes)
	}
	got.Source, got.Notes = want.Source, want.Notes
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("another layout gives another frontier: -want +got:\n%s", d)
	}
}

// valueOf returns the value of a flag; if it is given several times, the last one counts.
func valueOf(args []string, flag string) string {
	args = slices.Clone(args)
	slices.Reverse(args)
	return args[slices.Index(args, flag)-1]
}

// TestEvaluateSettleRule checks that the policy's own rule is drawn, or that a note says why not.
func TestEvaluateSettleRule(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	path := writeFile(t, "p.yaml", settledPolicy)
	args := fewHearts(t, "--format", "json")
	passes := readPasses(t, valueOf(args, "--passes"))
	text := runOK(t, "calibrate", "--policy", path, "--passes", valueOf(args, "--passes"), "--settle", "0.03", "--settle-released", "0.15")
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
	wantFragment(t, strings.Join(strings.Fields(table), " "), "certified for at most 3% with confidence 0.9")
	wantFragment(t, runOK(t, append(args, "--policy", settled, "--format", "svg")...), "certified: at most 3%; learned here")

	noted := func(policy, passes, note string) {
		t.Helper()
		f := readFrontier(t, runOK(t, append(args, "--policy", writeFile(t, "p.yaml", policy), "--passes", passes)...))
		if f.Rule != nil || !slices.ContainsFunc(f.Notes, func(n string) bool { return strings.Contains(n, note) }) {
			t.Errorf("rule %+v, notes %q; expected none, and %q", f.Rule, f.Notes, note)
		}
	}
	noted(strings.Replace(text, "0.0435", "0.05", 1), passes.Name, "is not in force")
	twenty := *passes
	twenty.S = 20
	fewer := writePasses(t, "<f4", &twenty, record.SNK, passes.N)
	noted(text, fewer, "it is for 30 passes, and there are 20")
	noted(text, fewer, "the policy expects 30 passes; here all 20")
}

// TestEvaluateSettleOrdered checks that ensemble members keep their order, so that there is only
// one order to follow.
func TestEvaluateSettleOrdered(t *testing.T) {
	t.Parallel()
	ensemble := strings.Replace(strings.Replace(settledPolicy, "expected: 30", "expected: 5", 1), "0.0435", "0.0079", 1)
	args := []string{"evaluate", "--settle", "--policy", writeFile(t, "p.yaml", ensemble), "--passes",
		recordings + "ctg-ensemble.passes.npy", "--format", "json"}
	f := readFrontier(t, runOK(t, append(args, "--ordered")...))
	if !f.Source.Ordered || f.Source.Orders != 1 || f.Source.LearningOrders != 40 || f.Source.Labels != nil || f.Full.Critical != nil {
		t.Errorf("source %+v", f.Source)
	}
	for _, p := range f.Method(calibrate.FewerPasses).Points {
		if p.Disagreement != float64(p.Disagreements)/float64(f.Summary.DrawnOn) {
			t.Errorf("in one order, %v and %d of %d", p.Disagreement, p.Disagreements, f.Summary.DrawnOn)
		}
	}
}

func TestEvaluateSettleFormats(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	wantFragments(t, runOK(t, fewHearts(t)...),
		"Model hearts: 500 inputs, 30 passes each, 3 classes", "\n gate, scope never, all \n", " 0.1% 0.25%",
		"\n the learned rule ", "\n the score alone ", "\n fewer passes for every input ", "\n 30.00 1.00x 0.00% ", "\n 2.00 15.00x ",
		" of 250 ", "a share of 1% is fewer than 5 of the 250 inputs", "labels.npy")
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
	expectRefusals(t, "evaluate --settle", []refusal{
		{"--passes " + three, "expected --policy with the policy", exitUsage},
		{file(), "missing flags: --passes=FILE", exitUsage},
		{file() + mcdropout + " --coverage 0.8", "unknown flag --coverage", exitUsage},
		{file() + mcdropout + " --format csv", "--format must be one of", exitUsage},
		{file() + mcdropout + " --kind logits", "--kind is logits, but model hearts", exitUsage},
		{file() + mcdropout + " --out " + recordings + "ctg-mcdropout.passes.npy", "is what is read", exitUsage},
		{file(", threshold: 0.0435", "") + mcdropout, "model hearts: no input can stop early: the policy has no thresholds", exitFault},
		{file("c_crit_max", "ova_mi") + mcdropout, "primary.score is ova_mi", exitFault},
		{file("gate: never", "kind: dirichlet\n    gate: never", "fewest: 2, expected: 30", "fewest: 1, expected: 1") + mcdropout,
			"kind is dirichlet", exitFault},
		{hand + " --passes " + three, "has 4 passes, expected more than 4, the fewest after which an input may be decided", exitFault},
		{file("fewest: 2, expected: 30", "fewest: 30") + mcdropout, "has 30 passes, expected more than 30", exitFault},
		{file() + " --passes " + three, "1 inputs deferred and 0 retained to learn from: expected at least 10 of each", exitFault},
		{file() + " --passes " + writeNpy(t, "<f4", []int{1001, 1, 3}, slices.Repeat([]float64{0.5, 0.25, 0.25}, 1001)),
			"has 1001 passes, expected at most 1000", exitFault},
		{file("0.0435", "1000") + mcdropout, "0 inputs deferred and 1063 retained to learn from: expected at least 10 of each", exitFault},
		{file() + mcdropout + " --labels " + handLabels(t, 0, 1), "2 labels, expected 2126", exitFault},
		{file() + " --passes no.npy", "no.npy: no such file", exitFault},
		{"--policy no.yaml" + mcdropout, "no.yaml", exitFault},
	})
}
