package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Answer holds the printed fields of one input. Its fields are the keys of the JSON line, in their
// order; docs/json.md says what they mean. Undefined scores, and fields that a reply's detail leaves
// out, are null.
type Answer struct {
	Index           int         `json:"index"`            // position of the input in the recording, from 0
	Predicted       classNumber `json:"predicted"`        // class of the largest mean
	Mean            []float64   `json:"mean"`             // mean prediction of each class
	Variance        []float64   `json:"variance"`         // over the passes
	ThirdMoment     []float64   `json:"third_moment"`     // third central moment, divided by S
	C               []float64   `json:"c"`                // epistemic contribution C_k, nats
	Skewness        []float64   `json:"skewness"`         // above the reliability threshold C_k is not to be trusted
	M               []float64   `json:"m"`                // exact mutual information of each class, nats
	Entropy         nullable    `json:"entropy"`          // of the mean, nats
	ExpectedEntropy nullable    `json:"expected_entropy"` // mean entropy of the passes, nats
	MI              nullable    `json:"mi"`               // mutual information, nats
	SumC            nullable    `json:"sum_c"`            // nats, with few passes above mi by about S/(S-1)
	Scores          scores      `json:"scores"`           // null where undefined, as without critical classes
	Degenerate      bool        `json:"degenerate"`       // uncertainty is absent, not zero
	Saturated       bool        `json:"saturated"`        // degenerate, and every pass is one-hot
	Passes          int         `json:"passes"`
	Dominant        classNumber `json:"dominant"`       // class of the largest C_k
	C3              []float64   `json:"c3"`             // third-order form of C_k, nats, a diagnostic
	SumCTop         nullable    `json:"sum_c_top"`      // over the most probable classes, nats
	SumCWeighted    nullable    `json:"sum_c_weighted"` // sum of mean times C_k, nats
	Pairs           []Pair      `json:"pairs"`
	*Assessment
	Decision *Decision `json:"decision,omitempty"`
}

// Assessment holds how probable it is that the input is truly critical, under a policy with a risk
// model. The risk of an input called critical is null.
type Assessment struct {
	Risk       nullable `json:"risk"`                // that an input called safe is truly critical
	Priority   nullable `json:"priority"`            // that it is truly critical, whatever is predicted
	Percentile nullable `json:"priority_percentile"` // share of the calibration's inputs with no higher priority
}

// Pair holds two classes and their epistemic confusion.
type Pair struct {
	A           int     `json:"a"` // a class, by its position
	B           int     `json:"b"`
	Confusion   float64 `json:"confusion"` // sqrt(C_a C_b) max(0, -correlation), nats
	Correlation float64 `json:"correlation"`
}

// Decision holds a policy's decision.
type Decision struct {
	Action    string      `json:"action"` // retain, defer or observe
	Score     string      `json:"score"`  // the score that decided
	Value     nullable    `json:"value"`
	Threshold nullable    `json:"threshold"` // retained exactly when the value is at or under it
	Gate      string      `json:"gate"`      // primary or fallback; empty where the guard decided
	Class     classNumber `json:"class"`     // the critical class that set the score of a deferral
	Reason    string      `json:"reason"`
}

// Refusal holds the line of an input without a result.
type Refusal struct {
	Index int    `json:"index"`
	Error Reason `json:"error"`
}

// Reason says why there is no result: by the wire's ErrorReason in lower case, and in a sentence.
type Reason struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// FromOutcome returns the answer of an outcome under a policy. It shares the slices of o.
func FromOutcome(index int, m *engine.Model, o *engine.Outcome) *Answer {
	l := FromResult(index, m.Plan(), o.Result, m.Policy().TopClasses)
	if m.Policy().Risk != nil {
		l.Assessment = &Assessment{nullable(o.Risk), nullable(o.Priority), nullable(o.Percentile)}
	}
	d := &o.Decision
	l.Decision = &Decision{
		Action:    d.Action.String(),
		Score:     string(d.Score),
		Value:     nullable(d.Value),
		Threshold: noNumber,
		Gate:      d.Gate.String(),
		Class:     classNumber(d.Class),
		Reason:    d.Reason.String(),
	}
	if d.HasThreshold {
		l.Decision.Threshold = nullable(d.Threshold)
	}
	return l
}

// FromResult returns the answer of a result that no policy decided on. It shares the slices of r.
func FromResult(index int, plan *decomp.Plan, r *decomp.Result, topClasses int) *Answer {
	l := &Answer{
		Index:           index,
		Predicted:       classNumber(r.Predicted),
		Mean:            r.Mean,
		Variance:        r.Variance,
		ThirdMoment:     r.ThirdMoment,
		C:               r.C,
		Skewness:        r.Skewness,
		M:               r.M,
		Entropy:         nullable(r.Entropy),
		ExpectedEntropy: nullable(r.ExpectedEntropy),
		MI:              nullable(r.MI),
		SumC:            nullable(r.SumC),
		Scores:          scores(r.Scores),
		Degenerate:      r.Degenerate,
		Saturated:       r.Saturated,
		Passes:          r.Passes,
		Dominant:        classNumber(r.Dominant),
		C3:              r.C3(make([]float64, plan.Classes())),
		SumCTop:         nullable(r.SumCTop(topClasses)),
		SumCWeighted:    nullable(r.SumCWeighted()),
		Pairs:           make([]Pair, len(plan.Pairs())),
	}
	for i, p := range plan.Pairs() {
		l.Pairs[i] = Pair{p.A, p.B, r.PairTerm[i], r.Correlation[i]}
	}
	return l
}

// FromWire returns the answer of a daemon's reply, which carries the given detail. The answer
// shares the slices of d.
func FromWire(index int, d *ckdv1.Decomposition, detail ckdv1.Detail) *Answer {
	l := &Answer{
		Index:           index,
		Predicted:       classNumber(d.GetPredicted()),
		Degenerate:      d.GetDegenerate(),
		Saturated:       d.GetSaturated(),
		Passes:          int(d.GetPasses()),
		Entropy:         noNumber,
		ExpectedEntropy: noNumber,
		MI:              noNumber,
		SumC:            noNumber,
		Scores:          scoresOf(d.GetScores()),
		Dominant:        noClass,
		SumCTop:         noNumber,
		SumCWeighted:    noNumber,
	}
	if d.Priority != nil {
		l.Assessment = &Assessment{optional(d.Risk), optional(d.Priority), optional(d.PriorityPercentile)}
	}
	if w := d.GetDecision(); w != nil {
		l.Decision = &Decision{
			Action:    Word("ACTION_", w.GetAction()),
			Score:     Word("SCORE_", w.GetScore()),
			Value:     nullable(w.GetValue()),
			Threshold: optional(w.Threshold),
			Gate:      gateWord(w.GetGate()),
			Class:     noClass,
			Reason:    Word("DECISION_REASON_", w.GetReason()),
		}
		if w.DecidingClass != nil {
			l.Decision.Class = classNumber(w.GetDecidingClass())
		}
	}
	if detail >= ckdv1.Detail_DETAIL_VECTORS {
		l.Mean, l.C, l.Skewness = d.GetMean(), d.GetC(), d.GetSkewness()
		l.Entropy, l.MI, l.SumC = nullable(d.GetEntropy()), nullable(d.GetMi()), nullable(d.GetSumC())
		if d.Dominant != nil {
			l.Dominant = classNumber(d.GetDominant())
		}
	}
	if detail >= ckdv1.Detail_DETAIL_FULL {
		l.Variance, l.ThirdMoment, l.M, l.C3 = d.GetVariance(), d.GetThirdMoment(), d.GetM(), d.GetC3()
		l.ExpectedEntropy = nullable(d.GetExpectedEntropy())
		l.SumCTop, l.SumCWeighted = nullable(d.GetSumCTop()), nullable(d.GetSumCWeighted())
		l.Pairs = make([]Pair, len(d.GetPairs()))
		for i, p := range d.GetPairs() {
			l.Pairs[i] = Pair{int(p.GetClassA()), int(p.GetClassB()), p.GetConfusion(), p.GetCorrelation()}
		}
	}
	return l
}

// Refuse returns the refusal of an input whose passes decomp refused.
func Refuse(index int, err error) *Refusal {
	return &Refusal{Index: index, Error: Reason{reasonOf(err), err.Error()}}
}

// rowReasons has the wire's words for the faults of a row.
var rowReasons = map[decomp.RowFault]string{
	decomp.WrongClasses: "wrong_length",
	decomp.NotFinite:    "not_finite",
	decomp.Negative:     "negative",
	decomp.AboveOne:     "above_one",
	decomp.SumNotOne:    "sum_not_one",
	decomp.NotPositive:  "not_positive",
	decomp.NotLogits:    "not_logits",
	decomp.SumNotFinite: "not_finite",
}

// reasonOf returns the wire's word for an error of decomp.
func reasonOf(err error) string {
	if row := (*decomp.RowError)(nil); errors.As(err, &row) {
		if word, ok := rowReasons[row.Fault]; ok {
			return word
		}
	}
	if passes := (*decomp.PassesError)(nil); errors.As(err, &passes) {
		if passes.Got < passes.Least {
			return "too_few_passes"
		}
		return "too_many_passes"
	}
	return "internal"
}

// Word returns an enum's value as files and policies write it: c_crit_max for SCORE_C_CRIT_MAX.
func Word(prefix string, value fmt.Stringer) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// gateWord returns the outcome of the gate; "" where the guard decided.
func gateWord(g ckdv1.GateOutcome) string {
	if g == ckdv1.GateOutcome_GATE_OUTCOME_UNSPECIFIED {
		return ""
	}
	return Word("GATE_OUTCOME_", g)
}

// NewEncoder returns an encoder of JSON lines that escapes nothing for HTML.
func NewEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// nullable is a float64 that may be missing. NaN stands for that, and is null in JSON.
type nullable float64

var noNumber = nullable(math.NaN())

func optional(v *float64) nullable {
	if v == nil {
		return noNumber
	}
	return nullable(*v)
}

// MarshalJSON writes the shortest decimal that reads back as the same number.
func (n nullable) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// String returns the number as JSON has it, and "" if it is missing.
func (n nullable) String() string {
	if math.IsNaN(float64(n)) {
		return ""
	}
	return strconv.FormatFloat(float64(n), 'g', -1, 64)
}

// classNumber is the position of a class, or noClass, which is null in JSON.
type classNumber int

const noClass classNumber = -1

// MarshalJSON writes the position.
func (c classNumber) MarshalJSON() ([]byte, error) {
	if c < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(c), 10), nil
}

// String returns the position, and "" for no class.
func (c classNumber) String() string {
	if c < 0 {
		return ""
	}
	return strconv.Itoa(int(c))
}

// scores has all scores, with NaN for undefined ones.
type scores [decomp.NumScores]float64

// MarshalJSON writes an object of them, in their order.
func (s scores) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, v := range s {
		value, err := nullable(v).MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, decomp.Score(i).String())
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}

func scoresOf(s *ckdv1.Scores) scores {
	if s == nil {
		s = &ckdv1.Scores{}
	}
	var all scores
	for i, v := range [decomp.NumScores]*float64{
		decomp.Entropy:   s.Entropy,
		decomp.MI:        s.Mi,
		decomp.MaxProb:   s.Maxprob,
		decomp.EUVar:     s.EuVar,
		decomp.VarCrit:   s.VarCrit,
		decomp.EUVarCrit: s.EuVarCrit,
		decomp.OvAMI:     s.OvaMi,
		decomp.CCritSum:  s.CCritSum,
		decomp.CCritMax:  s.CCritMax,
		decomp.CBEC:      s.Cbec,
		decomp.PCritical: s.PCritical,
	} {
		all[i] = float64(optional(v))
	}
	return all
}

// Refusals counts the inputs that were refused.
type Refusals struct {
	Count int
	first *Refusal
}

// Add counts a refusal.
func (r *Refusals) Add(refusal *Refusal) {
	if r.Count++; r.first == nil {
		r.first = refusal
	}
}

// Err returns an error that says what became of the refused inputs, of n in all, and quotes the first
// refusal. It returns nil without refusals.
func (r *Refusals) Err(n int, what string) error {
	if r.Count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d inputs %s; the first: input %d: %s", r.Count, n, what,
		r.first.Index, r.first.Error.Message)
}
