package calibrate

import "github.com/ckd-project/ckd/calibrate/internal/riskfit"

// RiskReport says what the risk of the policy is worth, on inputs held out from its fit. All of it is
// about inputs called safe.
type RiskReport struct {
	// CalledSafe counts these inputs, Critical those of them that are truly critical.
	CalledSafe int `json:"called_safe"`
	Critical   int `json:"critical"`
	// Numbers counts those of the model, intercept included; Budget is the most that it may have.
	Numbers int `json:"numbers"`
	Budget  int `json:"budget"`
	// Larger compares the best form of more than two numbers with that of two; nil where none is
	// allowed.
	Larger *LargerForm `json:"larger_form"`
	// Expected is the sum of the risks. Critical/Expected is above 1 where the risk is too low.
	Expected             float64 `json:"expected"`
	ObservedOverExpected Figure  `json:"observed_over_expected"`
	// Slope is that of a logistic regression of the outcome on the log-odds of the risk: below 1
	// where the risks are too far apart.
	Slope Figure `json:"calibration_slope"`
	// Brier is the mean squared difference of risk and outcome, in [0,1]. LogLoss is in nats.
	Brier   Figure `json:"brier"`
	LogLoss Figure `json:"log_loss"`
	// ECE is the mean over the bins, by inputs, of |share of critical - mean risk|. SimulatedECE is
	// what chance alone gives: for labels drawn from the risks themselves.
	ECE          float64 `json:"ece"`
	SimulatedECE Figure  `json:"simulated_ece"`
	// Bins has up to ten bins of equally many inputs, by ascending risk.
	Bins []RiskBin `json:"bins"`
}

// LargerForm says how much lower the mean log loss of a larger form is, in nats, and whether it was
// taken: if the gain is above its standard error.
type LargerForm struct {
	Numbers       int     `json:"numbers"`
	Gain          float64 `json:"gain"`
	StandardError float64 `json:"standard_error"`
	Taken         bool    `json:"taken"`
}

// RiskBin has inputs of similar risk.
type RiskBin struct {
	Inputs   int     `json:"inputs"`
	Critical int     `json:"critical"`
	Risk     float64 `json:"risk"` // mean
	Observed Figure  `json:"observed"`
}

// Figure is an estimate with its interval, whose kind is said in words.
type Figure struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Kind  string  `json:"interval"`
}

// riskReport returns the report of a fit.
func riskReport(f *riskfit.Fit) *RiskReport {
	v := f.Reliability
	r := &RiskReport{
		CalledSafe: f.CalledSafe, Critical: f.Missed, Numbers: f.Numbers, Budget: f.Budget, Expected: v.Expected,
		ObservedOverExpected: Figure(v.ObservedOverExpected), Slope: Figure(v.Slope), Brier: Figure(v.Brier), LogLoss: Figure(v.LogLoss),
		ECE: v.ECE, SimulatedECE: Figure(v.SimulatedECE),
	}
	if l := f.Larger; l != nil {
		r.Larger = &LargerForm{l.Numbers, l.Gain, l.StandardError, l.Taken}
	}
	for _, b := range v.Bins {
		r.Bins = append(r.Bins, RiskBin{b.Inputs, b.Critical, b.Risk, Figure(b.Observed)})
	}
	return r
}
