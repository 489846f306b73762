package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Report holds the demo's results.
type Report struct {
	Model     string     `json:"model"`
	Recording string     `json:"recording"`
	Passes    int        `json:"passes"`
	Policy    Policy     `json:"policy"`
	Tuning    Tuning     `json:"tuning"`
	Inputs    int        `json:"inputs"`
	Retained  int        `json:"retained"`
	Deferred  int        `json:"deferred"`
	Fallback  int        `json:"fallback"` // inputs decided by the fallback score
	Classes   []Class    `json:"classes"`
	Rules     []Rule     `json:"rules"`
	Top       []Deferred `json:"top_deferred"`
	Seconds   float64    `json:"seconds"` // of streaming
	Outcomes  *Outcomes  `json:"outcomes"`
	Addresses Addresses  `json:"addresses"`

	missed []int // inputs of the recording: critical, called safe and retained
}

// Policy describes the policy that decided.
type Policy struct {
	Version     string  `json:"version"`
	Hash        string  `json:"hash"`
	Gate        string  `json:"gate"`
	Reliability float64 `json:"reliability_threshold"`
	Primary     Score   `json:"primary"`
	Fallback    Score   `json:"fallback"`
	Settle      *Settle `json:"settle,omitempty"`
}

// Settle describes the policy's early-stopping rule. The traffic of Options.Keep uses it; the
// inputs of the report have all their passes.
type Settle struct {
	Disagreement float64 `json:"disagreement"` // largest share of inputs decided otherwise than by all passes
	Confidence   float64 `json:"confidence"`
	MeanPasses   float64 `json:"mean_passes"` // of the inputs that it was certified on
}

// Score names a score and its threshold.
type Score struct {
	Score     string  `json:"score"`
	Threshold float64 `json:"threshold"`
}

// Tuning says how the thresholds were set.
type Tuning struct {
	Inputs      int     `json:"inputs"`
	Coverage    float64 `json:"coverage"` // of each score
	Permutation string  `json:"permutation"`
}

// Class summarises one class over all inputs.
type Class struct {
	Name       string  `json:"name"`
	Critical   bool    `json:"critical"`
	MeanC      float64 `json:"mean_c"`           // nats
	Unreliable float64 `json:"unreliable_share"` // of inputs with skewness over the threshold
	Dominant   float64 `json:"dominant_share"`   // of inputs where its C_k is the largest
}

// Rule judges a deferral rule by the labels.
type Rule struct {
	Name     string  `json:"name"`
	Retained int     `json:"retained"`
	Coverage float64 `json:"coverage"`
	Accuracy float64 `json:"accuracy"`
	// CriticalMissRate is Missed over all critical inputs, CriticalFNR over the retained ones.
	CriticalMissRate float64 `json:"critical_miss_rate"`
	CriticalInputs   int     `json:"critical_inputs"`
	CriticalFNR      float64 `json:"critical_fnr"`
	Missed           int     `json:"critical_missed"`
	Critical         int     `json:"critical_retained"`
}

// Deferred is one input that a person should see.
type Deferred struct {
	Input     string    `json:"input"`
	Label     string    `json:"label"`
	Predicted string    `json:"predicted"`
	Score     string    `json:"score"`
	Value     float64   `json:"value"`
	Threshold float64   `json:"threshold"`
	Gate      string    `json:"gate"`
	Class     string    `json:"deciding_class,omitempty"`
	Reason    string    `json:"reason"`
	C         []float64 `json:"c"`
	Skewness  []float64 `json:"skewness"`
	Mean      []float64 `json:"mean"`
}

// Addresses holds where the daemon listens.
type Addresses struct {
	API     string `json:"api"`
	HTTP    string `json:"http"`
	Metrics string `json:"metrics"`
	Page    string `json:"page"` // the triage page
}

// topDeferred bounds the deferred inputs shown.
const topDeferred = 5

// newReport judges the results of the inputs shown.
func newReport(r *recordings.Recording, shown []int, results []client.Result, model *ckdv1.Model) (*Report, error) {
	report := &Report{
		Model: model.GetPolicy().GetModel(), Recording: r.Note, Passes: r.Passes.S, Inputs: len(results),
		Policy: Policy{
			Version: model.GetPolicy().GetVersion(), Hash: model.GetPolicy().GetHash(), Gate: strings.ReplaceAll(answer.Word("GATE_", model.GetGate()), "_", "-"),
			Reliability: model.GetReliabilityThreshold(), Primary: ruleScore(model.GetPrimary()), Fallback: ruleScore(model.GetFallback()),
		},
		Tuning: Tuning{Coverage: coverage, Permutation: permutationWords},
	}
	if rule := model.GetSettle(); rule != nil {
		report.Policy.Settle = &Settle{rule.GetDisagreement(), rule.GetConfidence(), rule.GetMeanPasses()}
	}
	for k, name := range model.GetClasses() {
		report.Classes = append(report.Classes, Class{Name: name, Critical: slices.Contains(model.GetCritical(), uint32(k))})
	}
	j := newJudgement(len(results))
	for i, result := range results {
		if result.Decomposition == nil {
			return nil, fmt.Errorf("input %s: no outcome: %w", result.ID, result.Err)
		}
		j.labels[i], j.predicted[i] = r.Labels[shown[i]], int(result.Decomposition.GetPredicted())
		j.mi[i], j.all[i], j.retained[i] = result.Decomposition.GetMi(), true, result.Retained()
		report.add(model, result, j.labels[i])
		if j.retained[i] && slices.Contains(r.Critical, j.labels[i]) && !slices.Contains(r.Critical, j.predicted[i]) {
			report.missed = append(report.missed, shown[i])
		}
	}
	report.Rules = j.rules(report.Retained, r.Critical)
	// The two scores have different scales, so the rank is how far a score is over its threshold.
	slices.SortStableFunc(report.Top, func(a, b Deferred) int {
		return cmp.Compare(b.Value/b.Threshold, a.Value/a.Threshold)
	})
	report.Top = report.Top[:min(topDeferred, len(report.Top))]
	return report, nil
}

// add counts the result of one input, and adds it to Top if it is deferred.
func (r *Report) add(model *ckdv1.Model, result client.Result, label int) {
	d, n := result.Decomposition, float64(r.Inputs)
	if result.Retained() {
		r.Retained++
	} else {
		r.Deferred++
		r.Top = append(r.Top, newDeferred(model, result, label))
	}
	if d.GetDecision().GetGate() == ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK {
		r.Fallback++
	}
	for k, c := range d.GetC() {
		r.Classes[k].MeanC += c / n
	}
	for _, k := range d.GetUnreliable() {
		r.Classes[k].Unreliable += 1 / n
	}
	if d.Dominant != nil {
		r.Classes[d.GetDominant()].Dominant += 1 / n
	}
}

// judgement holds the labels, predictions and scores that rules are judged by, for each input.
type judgement struct {
	labels, predicted []int
	mi                []float64 // mutual information, in nats
	all, retained     []bool
}

func newJudgement(n int) *judgement {
	return &judgement{make([]int, n), make([]int, n), make([]float64, n), make([]bool, n), make([]bool, n)}
}

// rules judges what is retained without deferral, by mutual information alone for as many
// inputs, and by ckd.
func (j *judgement) rules(retained int, critical []int) (rules []Rule) {
	everything := eval.Select(j.labels, j.predicted, j.all, critical).Critical
	for _, rule := range []struct {
		name     string
		retained []bool
	}{
		{"no deferral", j.all},
		{"mutual information alone", eval.Lowest(j.mi, retained)},
		{"ckd", j.retained},
	} {
		s := eval.Select(j.labels, j.predicted, rule.retained, critical)
		rules = append(rules, Rule{
			Name: rule.name, Retained: s.Retained, Coverage: s.Coverage(), Accuracy: s.Accuracy(),
			CriticalMissRate: float64(s.Missed) / float64(everything), CriticalInputs: everything,
			CriticalFNR: s.CriticalFNR(), Missed: s.Missed, Critical: s.Critical,
		})
	}
	return rules
}

func newDeferred(model *ckdv1.Model, result client.Result, label int) Deferred {
	d, decision := result.Decomposition, result.Decomposition.GetDecision()
	deferred := Deferred{
		Input:     result.ID,
		Label:     model.GetClasses()[label],
		Predicted: model.GetClasses()[d.GetPredicted()],
		Score:     answer.Word("SCORE_", decision.GetScore()),
		Value:     decision.GetValue(),
		Threshold: decision.GetThreshold(),
		Gate:      answer.Word("GATE_OUTCOME_", decision.GetGate()),
		Reason:    answer.Word("DECISION_REASON_", decision.GetReason()),
		C:         d.GetC(),
		Skewness:  d.GetSkewness(),
		Mean:      d.GetMean(),
	}
	if decision.DecidingClass != nil {
		deferred.Class = model.GetClasses()[decision.GetDecidingClass()]
	}
	return deferred
}

func ruleScore(r *ckdv1.ScoreRule) Score {
	return Score{answer.Word("SCORE_", r.GetScore()), r.GetThreshold()}
}
