package demo

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Report holds the demo's results.
type Report struct {
	recording *recordings.Recording
	model     *ckdv1.Model // as the daemon describes it
	tuned     int          // inputs that set the thresholds
	shown     []int        // inputs of the recording, with a result each
	results   []client.Result
	took      time.Duration // by streaming them
	outcomes  *outcomes

	keep             bool   // the daemon stays up
	api, http, admin string // where it listens
}

// WriteText writes the report for a person, on one screen.
func (r *Report) WriteText(w io.Writer) error {
	s := r.screen()
	if _, err := s.WriteTo(w); err != nil || !r.keep {
		return err
	}
	_, err := fmt.Fprintf(w, "\ngRPC API %s\nHTTP API %s\nmetrics  %s/metrics\npage     %[3]s/\n", r.api, r.http, r.admin)
	return err
}

func (r *Report) screen() document.Screen {
	rules := r.rules()
	none, mi, ours := rules[0], rules[1], rules[len(rules)-1]
	critical := none.Critical // all of them are retained without review
	low, high := binomial.Interval(ours.Missed, critical, 0.95)
	reviews := 1000 * (1 - ours.Coverage())
	s := document.Screen{
		Lead: fmt.Sprintf("With %.0f reviews per 1,000 inputs this policy misses %d of %d critical inputs (%s, %s); with as many by mutual "+
			"information %d are missed, without review %d.%s", reviews, ours.Missed, critical, document.Percent(float64(ours.Missed)/float64(critical)),
			document.Interval95(low, high), mi.Missed, none.Missed, r.outcomes.shift.lead()),
		Table: &document.Table{TextColumns: 1, Head: []string{"rule", "missed of critical", "critical miss rate", "95% interval", "reviews per 1,000", "accuracy of retained"}},
	}
	for _, rule := range rules {
		low, high := binomial.Interval(rule.Missed, critical, 0.95)
		s.Table.Add(rule.name, document.Of{rule.Missed, critical}, document.Share(float64(rule.Missed)/float64(critical)), document.ShareInterval{low, high},
			fmt.Sprintf("%.0f", 1000*(1-rule.Coverage())), document.Share(rule.Accuracy()))
	}
	byFallback := 0
	for _, result := range r.results {
		if result.Decomposition.GetDecision().GetGate() == ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK {
			byFallback++
		}
	}
	s.Rests = []string{
		fmt.Sprintf("%s fetal heart recordings, %d passes each of a network with MC dropout, streamed through a daemon's sockets and decided in %.2f s. "+
			"The thresholds were set on %s others, without labels.", document.Count(len(r.results)), r.recording.Passes.S, r.took.Seconds(), document.Count(r.tuned)),
		fmt.Sprintf("For %s of the inputs the skewness says that C_k of a critical class is not to be trusted: the fallback decided them, by the "+
			"%s.", document.Percent(float64(byFallback)/float64(len(r.results))), policy.CBEC.Words()),
		fmt.Sprintf("This gain is one where critical calls are reviewed too. Where these are acted on anyway, and only inputs called safe are reviewed, the largest "+
			"probability alone misses %d with as many reviews. What C_k adds there is which class is in doubt.", r.safeOnly()),
		r.example(),
		r.outcomes.says(),
	}
	s.Next = []string{
		"ckd demo --keep --shift: open the page that it names, and see the policy break its promise.",
		"Your own passes: ckd evaluate, then ckd calibrate.",
	}
	return s
}

// rule is a rule of deferral with what it does, by the labels.
type rule struct {
	name string
	eval.Selective
}

// rules judges what is retained without review, by plain scores for as many inputs, and by ckd.
func (r *Report) rules() []rule {
	labels, predicted := make([]int, len(r.results)), make([]int, len(r.results))
	mi, entropy, maxprob := make([]float64, len(r.results)), make([]float64, len(r.results)), make([]float64, len(r.results))
	all, byPolicy, kept := make([]bool, len(r.results)), make([]bool, len(r.results)), 0
	for i, result := range r.results {
		d := result.Decomposition
		labels[i], predicted[i] = r.recording.Labels[r.shown[i]], int(d.GetPredicted())
		mi[i], entropy[i], maxprob[i] = d.GetMi(), d.GetEntropy(), d.GetScores().GetMaxprob()
		all[i], byPolicy[i] = true, result.Retained()
		if byPolicy[i] {
			kept++
		}
	}
	judge := func(name string, retained []bool) rule {
		return rule{name, eval.Select(labels, predicted, retained, r.recording.Critical)}
	}
	return []rule{
		judge("no review", all), judge(policy.MI.Short(), eval.Lowest(mi, kept)), judge(policy.Entropy.Short(), eval.Lowest(entropy, kept)),
		judge(policy.MaxProb.Short(), eval.Lowest(maxprob, kept)), judge("this policy", byPolicy),
	}
}

// safeOnly returns how many critical inputs are missed if as many inputs are reviewed as by ckd, but only
// ones called safe, those of the smallest largest probability.
func (r *Report) safeOnly() int {
	labels, predicted, maxprob, kept := []int{}, []int{}, []float64{}, 0
	for i, result := range r.results {
		d := result.Decomposition
		labels, predicted, maxprob = append(labels, r.recording.Labels[r.shown[i]]), append(predicted, int(d.GetPredicted())), append(maxprob, d.GetScores().GetMaxprob())
		if r.isCritical(predicted[i]) {
			maxprob[i] = math.Inf(-1) // retained
		}
		if result.Retained() {
			kept++
		}
	}
	return eval.Select(labels, predicted, eval.Lowest(maxprob, kept), r.recording.Critical).Missed
}

func (r *Report) isCritical(class int) bool { return slices.Contains(r.recording.Critical, class) }

// missed returns the inputs of the recording that are critical, called safe and retained.
func (r *Report) missed() (missed []int) {
	for i, result := range r.results {
		if result.Retained() && r.isCritical(r.recording.Labels[r.shown[i]]) && !r.isCritical(int(result.Decomposition.GetPredicted())) {
			missed = append(missed, r.shown[i])
		}
	}
	return missed
}

// caught returns the numbers of the deferred results that are critical and called safe, those first that are
// furthest over their thresholds. The two scores have different scales, so that the rank is by the ratio.
func (r *Report) caught() (caught []int) {
	for i, result := range r.results {
		if !result.Retained() && r.isCritical(r.recording.Labels[r.shown[i]]) && !r.isCritical(int(result.Decomposition.GetPredicted())) {
			caught = append(caught, i)
		}
	}
	over := func(i int) float64 {
		d := r.results[i].Decomposition.GetDecision()
		return d.GetValue() / d.GetThreshold()
	}
	slices.SortStableFunc(caught, func(a, b int) int { return cmp.Compare(over(b), over(a)) })
	return caught
}

// example shows a caught input, with C_k of each class.
func (r *Report) example() string {
	caught, classes := r.caught(), r.model.GetClasses()
	if len(caught) == 0 {
		return "No critical input that the model called safe was deferred."
	}
	d := r.results[caught[0]].Decomposition
	var c []string
	for k, value := range d.GetC() {
		mark := ""
		if slices.Contains(d.GetUnreliable(), uint32(k)) {
			mark = "?"
		}
		c = append(c, fmt.Sprintf("%s %.3f%s", classes[k], value, mark))
	}
	return fmt.Sprintf("%d inputs wrongly called safe went to a person. One of them: called %s, truly %s; C_k in nats: %s (?: not to be trusted).",
		len(caught), classes[d.GetPredicted()], classes[r.recording.Labels[r.shown[caught[0]]]], strings.Join(c, ", "))
}
