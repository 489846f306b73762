package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/cmd/ckd/internal/whatif"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/policy"
)

// whatifPolicy decides by mutual information, with a log of a share.
const whatifPolicy = `
models:
  - name: m
    classes: [normal, suspect]
    critical: [suspect]
    gate: never
    primary: {score: mi, threshold: 0.1}
    log: {decisions: 0.1, id: plain}
`

// whatifLog writes a log under a policy: of what is called normal, two inputs retained and not drawn, two audited, two
// deferred and one decided early, and one called suspect. It returns its path and the records.
func whatifLog(t *testing.T, text string) (path string, all []*decisionlog.Record) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "decisions.log")
	p := outcometest.Policy(t, text)
	l, err := decisionlog.Open(decisionlog.Options{Path: path, Software: "1"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetPolicies([]decisionlog.Policy{decisionlog.PolicyOf(p)})
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	for i, c := range []struct {
		mi, share, propensity float64
		predicted             int
		settled               bool
	}{
		{0.01, 0.1, 0.02, 0, false}, {0.06, 0.1, 0.02, 0, false}, {0.03, 1, 0.02, 0, false}, {0.08, 1, 0.05, 0, false},
		{0.12, 1, 1, 0, false}, {0.3, 1, 1, 0, false}, {0.3, 1, 1, 0, true}, {0.05, 1, 0.5, 1, false},
	} {
		scores := [decomp.NumScores]float64{decomp.MI: c.mi, decomp.MaxProb: 0.3}
		d := policy.Decision{Action: policy.Retain, Reason: policy.UnderThreshold, Gate: policy.ByPrimary, Score: policy.MI, Value: c.mi, Threshold: 0.1, HasThreshold: true, Class: -1}
		if c.mi > 0.1 {
			d.Action, d.Reason = policy.Defer, policy.AboveThreshold
		}
		r := &decisionlog.Record{Time: begin + int64(i)*60e6, Model: "m", PolicyHash: p.Hash, ID: fmt.Append(nil, "exam-", i+1), Classes: p.Classes, Decision: &d, Scores: &scores,
			Passes: 30, Share: c.share, Review: c.share == 1, Propensity: c.propensity, Predicted: c.predicted, Settled: c.settled, Risk: math.NaN()}
		l.Add(r)
		all = append(all, r)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, all
}

// TestWhatif compares the screen with one whose numbers were counted by hand. The new thresholds are 0.05 and 0.2: the
// second record, for ten, and the fourth would be deferred, and nothing is known of the one decided early.
func TestWhatif(t *testing.T) {
	t.Parallel()
	path, records := whatifLog(t, whatifPolicy)
	next := writeFile(t, "new.yaml", strings.Replace(whatifPolicy, "threshold: 0.1", "threshold: 0.05", 1))
	looser := writeFile(t, "looser.yaml", strings.Replace(whatifPolicy, "threshold: 0.1", "threshold: 0.2", 1))
	truths := writeFile(t, "truths.csv", "id,truth\nexam-3,suspect\nexam-4,suspect\nexam-5,suspect\nexam-2,suspect\nexam-1,normal\n")
	const want = `Of about 26 decisions logged between 2026-03-01 12:00 and 2026-03-01 12:07, the new policy would
send 11 more to people (423 more per 1,000) and 0 fewer; 1 cannot be known, because it was decided
before the last pass, and the new policy may stop elsewhere.

 then    now        decisions    per  normal  suspect
                               1,000
──────────────────────────────────────────────────────
 retain  defer             11    423      11        0
 retain  retain            12    462      11        1
 defer   defer              2     77       2        0
 defer   not known          1     38       1        0

What this rests on
- Misses: about 70 then and 50 now, where each known one stands for one over its audit probability
  (2 and 1 were read).
- Not known: the truth of 0 inputs called safe that went to people then and would not now; how many
  misses are like 1 known one that no audit drew, which count nowhere.
- The truth is known of 5 of 8 records.
- A record that was kept with a share counts as one over it: 8 records stand for 26 decisions.
- The scores are those that were recorded. Where a record does not say whether passes hardly
  differed, their mutual information tells, if it can.
`
	if diff := cmp.Diff(want, runOK(t, "whatif", "--policy", next, "--log", path, "--outcomes", truths)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if page := runOK(t, "whatif", "--policy", next, "--log", path, "--format", "html"); !strings.Contains(page, "not known") || !strings.Contains(page, "What cannot be known") {
		t.Errorf("%s", page)
	}

	read := func(args ...string) (r whatif.Report) {
		t.Helper()
		if err := json.Unmarshal([]byte(runOK(t, append([]string{"whatif", "--log", path, "--format", "json", "--policy"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	// Of the export only the policy, the time and the scores, in float32, are the decision's.
	var lines strings.Builder
	for i, truth := range []string{"normal", "", "suspect", "suspect", "suspect"} {
		line := ledger.Line{ID: "ab", Model: "m", Policy: records[i].PolicyHash, Time: time.UnixMicro(records[i].Time).UTC(), Scores: map[string]*float64{}}
		for s, v := range records[i].Scores {
			line.Scores[decomp.Score(s).String()] = new(float64(float32(v)))
		}
		if truth != "" {
			line.Truth = &truth
		}
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	}
	export := writeFile(t, "outcomes.jsonl", lines.String())
	// The fifth, deferred then, would be retained, and stands for itself. The sixth stays deferred.
	if o := read(looser, "--outcomes", export); o.Fewer != 1 || o.More != 0 ||
		!cmp.Equal(*o.Outcomes, whatif.Outcomes{Known: 4, ReadThen: 2, ReadNow: 3, MissedThen: 70, MissedNow: 71}) {
		t.Errorf("%+v, %+v", o, *o.Outcomes)
	}
	onlyOne := writeFile(t, "one.csv", "id,truth\nexam-3,suspect\n")
	if o := read(looser, "--outcomes", onlyOne).Outcomes; o.Unread != 1 || o.MissedNow != 50 {
		t.Errorf("%+v", *o)
	}
	same := read(writeFile(t, "same.yaml", whatifPolicy))
	if same.More != 0 || same.Fewer != 0 || same.Unknown != 0 || same.Decisions != 26 {
		t.Errorf("the same policy: %+v", same)
	}
}

// TestWhatifLogOfReviews expects to be told what a log of what was to be reviewed cannot show.
func TestWhatifLogOfReviews(t *testing.T) {
	t.Parallel()
	path, _ := whatifLog(t, strings.Replace(whatifPolicy, "    log: {decisions: 0.1, id: plain}\n", "", 1))
	out := runOK(t, "whatif", "--policy", writeFile(t, "p.yaml", strings.Replace(whatifPolicy, "0.1", "0.05", 1)), "--log", path)
	if !strings.HasPrefix(out, "Warning: The log has only what was to be reviewed.") {
		t.Errorf("%s", out)
	}
	for args, message := range map[string]string{
		"": "expected --policy",
		"--policy " + writeFile(t, "n.yaml", strings.Replace(whatifPolicy, "name: m", "name: n", 1)):                            `the log has no record of model "n", but records of m`,
		"--policy " + writeFile(t, "p.yaml", whatifPolicy) + " --outcomes " + writeFile(t, "t.csv", "id,truth\n1,suspekt\n"):    `t.csv:2:1: truth: "suspekt" is no class of model m, did you mean "suspect"?`,
		"--policy " + writeFile(t, "p.yaml", whatifPolicy) + " --outcomes " + writeFile(t, "t.csv", "id,truth\n1,a\n1,b\n"):     `t.csv:3:1: id: "1" has another truth than in line 2`,
		"--policy " + writeFile(t, "p.yaml", whatifPolicy) + " --outcomes " + writeFile(t, "t.csv", "id,truth,first_reading\n"): "expected ckd outcomes export --format jsonl",
	} {
		if out, stderr, code := runCommand(t, append([]string{"whatif", "--log", path}, strings.Fields(args)...)...); code == 0 || out != "" || !strings.Contains(stderr, message) {
			t.Errorf("%s: exit %d, want %q: %s%s", args, code, message, out, stderr)
		}
	}
}
