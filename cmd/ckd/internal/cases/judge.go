package cases

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

// Result holds a case and what its policy decided.
type Result struct {
	*Case
	Holds bool
	// Found says what was decided and why, Expected what should have been.
	Found, Expected string
}

// Judge decides every case by its policy. The error is of a policy that cannot decide.
func Judge(cases []Case) ([]Result, error) {
	models := map[*policy.Policy]*engine.Model{}
	results := make([]Result, len(cases))
	for i := range cases {
		c := &cases[i]
		if models[c.Policy] == nil {
			model, err := engine.New(c.Policy)
			if err != nil {
				return nil, err
			}
			models[c.Policy] = model
		}
		results[i] = c.judge(models[c.Policy])
	}
	return results, nil
}

func (c *Case) judge(m *engine.Model) Result {
	r := Result{Case: c, Expected: c.expected()}
	batch, o := m.NewBatch(), m.NewOutcome()
	err := batch.Reset(c.passes)
	if err == nil {
		err = batch.Outcome(0, o)
	}
	if err != nil {
		r.Found = fmt.Sprintf("refused: %v", err)
		return r
	}
	d := &o.Decision
	r.Found = found(c.Policy, o)
	r.Holds = d.Action == c.Expect && (c.Reason == 0 || c.Reason == d.Reason) && (c.Predicted < 0 || c.Predicted == o.Predicted)
	return r
}

var done = map[policy.Action]string{policy.Retain: "retained", policy.Defer: "deferred", policy.Observe: "observed"}

// expected says what the case wants.
func (c *Case) expected() string {
	s := done[c.Expect]
	if c.Predicted >= 0 {
		s += ", called " + c.Policy.Classes[c.Predicted]
	}
	if c.Reason != 0 {
		s += ", since " + because[c.Reason]
	}
	return s
}

// because has the reasons in words.
var because = map[policy.Reason]string{
	policy.AboveThreshold:    "a score is above its threshold",
	policy.UnderThreshold:    "no score is above its threshold",
	policy.PredictedCritical: "it is called critical",
	policy.IsDegenerate:      "its passes hardly differ",
	policy.IsSaturated:       "its passes are identical and one-hot",
	policy.Observing:         "the policy has no thresholds",
	policy.Unfamiliar:        "it is unfamiliar",
	policy.Violated:          "an alarm is up",
	policy.SoftmaxTwice:      "its softmax was taken twice",
}

// found says what was decided, and why.
func found(p *policy.Policy, o *engine.Outcome) string {
	d := &o.Decision
	s := fmt.Sprintf("%s, called %s", done[d.Action], p.Classes[o.Predicted])
	switch d.Reason {
	case policy.AboveThreshold, policy.UnderThreshold:
		if math.IsNaN(d.Value) {
			return fmt.Sprintf("%s, since its %s cannot be computed", s, d.Score.Words())
		}
		return fmt.Sprintf("%s, since its %s", s, d.Score.Compare(d.Value, d.Threshold))
	}
	return s + ", since " + because[d.Reason]
}
