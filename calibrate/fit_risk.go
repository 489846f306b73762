package calibrate

import (
	"github.com/ckd-project/ckd/calibrate/internal/riskfit"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

type (
	// RiskOptions say how a model of risk is fitted.
	RiskOptions = riskfit.Options
	// RiskFit is a model of risk as a policy holds it, with what its probabilities are worth on
	// inputs held out.
	RiskFit = riskfit.Fit
	// RiskReport says what the risk of a policy is worth, on inputs held out from its fit.
	RiskReport = riskfit.Reliability
	// RiskBin has inputs of similar risk.
	RiskBin = riskfit.Bin
	// Figure is an estimate with its interval, whose kind is said in words.
	Figure = riskfit.Figure
)

// FitRisk fits the model of risk of a policy on a labelled table, as Choose does: for those who
// measure what the probabilities are worth. The Risk of the fit is nil where too few critical inputs
// are called safe.
func FitRisk(t *eval.Table, labels []int, o RiskOptions) (*RiskFit, error) {
	return riskfit.New(t, labels, o)
}

// Risks returns the risk of each input of a table; NaN of an input called critical.
func Risks(t *eval.Table, r *policy.Risk) []float64 { return riskfit.Risks(t, r) }
