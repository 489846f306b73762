package report

import (
	"strings"
	"testing"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// calibrationByHand returns a calibration with an early-stopping rule, in which no two numbers are
// alike.
func calibrationByHand() *calibrate.Report {
	fnr, rate, rowFNR, rowRate, accuracy, rateNone := 0.071, 0.062, 0.095, 0.064, 0.951, 0.123
	exact := func(count, inputs int, share float64) *calibrate.ExactShare {
		return &calibrate.ExactShare{Inputs: inputs, Count: count, Share: share, Interval: [2]float64{share / 2, 2 * share}}
	}
	return &calibrate.Report{
		Software: "ckd test", PassesFile: eval.File{Name: "p.npy", SHA256: "aa11"}, LabelsFile: eval.File{Name: "l.npy", SHA256: "bb22"},
		Objective: "coverage 0.8", Scope: policy.PredictedSafe, Seed: 7, Inputs: 2000, Critical: 471, Missed: 58, Passes: 30,
		Chosen: &calibrate.Chosen{Gate: policy.AnyCritical, ReliabilityThreshold: 0.3, Primary: calibrate.Threshold{Score: "c_crit_max", Threshold: 0.0123456789},
			Fallback: &calibrate.Threshold{Score: "cbec", Threshold: 0.02}},
		Expected: &calibrate.Expected{Coverage: 0.801, CoverageInterval: [2]float64{0.783, 0.819}, CriticalFNR: &fnr,
			CriticalFNRInterval: &[2]float64{0.041, 0.103}, CriticalMissRate: &rate, CriticalMissRateInterval: &[2]float64{0.03, 0.1}},
		Lines: []policy.Line{
			{Bounds: policy.CriticalFNR, Above: 0.103, From: policy.ExpectedLine},
			{Bounds: policy.CriticalMissRate, Above: 0.08, From: policy.CertifiedLine},
			{Bounds: policy.CriticalFNR, Class: "rare", Above: 0.21, From: policy.StatedLine, By: "ann", On: "2026-11-03"},
		},
		Comparison: []calibrate.Row{
			{Rule: "no review", Scope: policy.AllInputs, Inputs: 2000, CriticalInputs: 471, Missed: 58, CriticalKept: 440, FalseKept: 61,
				CriticalMissRate: &rateNone, CriticalMissRateInterval: &[2]float64{0.095, 0.156}},
			{Rule: "calibrated", Scope: policy.PredictedSafe, Calibrated: true, Inputs: 2000, Deferred: 396, Reviews: 396, Coverage: 0.802,
				Accuracy: &accuracy, CriticalFNR: &rowFNR, CriticalFNRInterval: &[2]float64{0.052, 0.141}, CriticalRetained: 316, Missed: 30,
				CriticalInputs: 471, CriticalMissRate: &rowRate, CriticalMissRateInterval: &[2]float64{0.043, 0.09}, CriticalKept: 300,
				FalseKept: 14},
			{Rule: "none retained", Scope: policy.AllInputs, Inputs: 2000, Deferred: 2000, Reviews: 2000},
			{Rule: "mi", Scope: policy.AllInputs, Nothing: true},
		},
		Reread:          []calibrate.Reread{{Input: 1234, Label: "suspect", Predicted: "normal", Risk: 0.0123}},
		ComparisonBasis: "inputs that were not used to set the rule", Why: []string{"a reason"}, Notes: []string{"a note"},
		EarlyStop: &calibrate.EarlyStop{
			Confidence: 0.9, Passes: 30, CertifiedOn: 1000, HalvesDiffer: exact(69, 990, 0.0697),
			Rule: &calibrate.EarlyStopRule{Statement: "A statement.", FirstAfter: 4, LastAfter: 29, MeanPasses: 15.7, Saving: 1.91, Settled: 612,
				Disagreements: calibrate.BoundedShare{Inputs: 1000, Count: 5, AtMost: 0.0091},
				Released:      calibrate.BoundedShare{Inputs: 199, Count: 3, AtMost: 0.0334}, CriticalReleased: &calibrate.BoundedShare{},
				CriticalFNR: exact(21, 160, 0.131), FullCriticalFNR: exact(20, 161, 0.124)},
		},
		PolicyHash: "cc33",
	}
}

// TestCalibrationPage compares tables with the calibration made by hand.
func TestCalibrationPage(t *testing.T) {
	t.Parallel()
	d := writePage(t, Calibration(calibrationByHand(), "policy.yaml"))
	d.expect(t, "Calibration: p.npy", "(coverage 0.8), scope predicted-safe", "2,000 inputs, 30 passes each", "471 of them critical, of which the model misses 58",
		"A statement.", "15.7 of 30 passes", "1.91 times fewer", "After 4 to 29 passes", "above 0.0123 nats", "skewness of a critical class is above 0.3", "above 0.02 nats",
		"612 of 1000 inputs", "with confidence 0.9", "Measured on inputs that were not used to set the rule", "a reason", "a note", "ckd serve --policy policy.yaml", "cc33")
	d.expectRows(t, "Scores and thresholds", "rule|score|threshold", "primary|c_crit_max|0.0123457", "fallback|cbec|0.02")
	d.expectRows(t, "Critical inputs of least probability of critical", "label|predicted|input|probability of critical", "suspect|normal|1234|1.2%")
	d.expectRows(t, "Lines", "figure|inputs|line from|alarm above", "critical FNR|all critical|upper end of the 95% interval|10.3%",
		"critical miss rate|all critical|certified|8.0%", "critical FNR|rare|stated by ann on 2026-11-03|21.0%")
	d.expectRows(t, "What early decisions change", "inputs|seen|share|at most",
		"decided otherwise than by all passes|5 of 1,000|0.50%|0.91%",
		"deferred by all passes, retained instead|3 of 199|1.51%|3.34%",
		"the same of critical inputs|none||")
	d.expectRows(t, "The full decision beside the early one", "figure|seen|share|95% interval (exact)",
		"two halves of the passes decide otherwise|69 of 990|7.0%|3.5% to 13.9%",
		"critical FNR with the rule in force|21 of 160|13.1%|6.6% to 26.2%",
		"critical FNR of all passes|20 of 161|12.4%|6.2% to 24.8%")
	d.expectRows(t, "Where all inputs may be deferred", "rule|missed|critical miss rate|95% interval (exact)|reviews per 1,000|critical calls kept|of these false",
		"no review|58 of 471|12.3%|9.5% to 15.6%|0|440|61", "none retained|0 of 0|n/a||1,000|0|0", "mutual information|none|||||")
	d.expectRows(t, "Where only inputs called safe may be deferred", "rule|missed|critical miss rate|95% interval (exact)|reviews per 1,000|critical calls kept|of these false",
		"* this policy|30 of 471|6.4%|4.3% to 9.0%|198|300|14")
	d.expectRows(t, "The paper's figures", "rule|coverage|accuracy|critical FNR|95% interval (exact)|missed",
		"* this policy|80.2%|95.1%|9.5%|5.2% to 14.1%|30 of 316")
	d.expectRows(t, "Files and settings", "what|value", "software|ckd test", "passes|p.npy", "SHA-256 of the passes|aa11", "labels|l.npy",
		"SHA-256 of the labels|bb22", "seed|7", "asked for|200 reviews per 1,000 inputs (coverage 0.8), scope predicted-safe", "hash that ckd check and answers show|cc33")
}

// TestCalibrationGuarantees gives each outcome of a certificate.
func TestCalibrationGuarantees(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		change func(*calibrate.Report)
		says   string
	}{
		"Certificate": {func(r *calibrate.Report) {
			r.Certificate = &calibrate.Certificate{Certificate: policy.Certificate{Kind: policy.LearnThenTest, Statement: "It holds.", PValue: 0.0123}}
		}, "by learn-then-test (p = 0.012): It holds."},
		"No certificate": {func(r *calibrate.Report) {
			r.EarlyStop = nil
			r.Certificate = &calibrate.Certificate{Void: "Void: tried before."}
		}, "tried before"},
		"No policy: nothing certifies": {func(r *calibrate.Report) {
			r.Refusal, r.Chosen, r.Expected, r.EarlyStop = &calibrate.Refusal{Reason: "too few"}, nil, nil, nil
		}, "Too few."},
		"This recording cannot support": {func(r *calibrate.Report) {
			r.Unsupported, r.Refusal, r.Chosen, r.Expected, r.EarlyStop = "This recording cannot support a policy: one.", &calibrate.Refusal{}, nil, nil, nil
		}, "--force"},
		"No rule to stop early": {func(r *calibrate.Report) {
			r.EarlyStop, r.Chosen, r.Expected = &calibrate.EarlyStop{Refusal: &calibrate.EarlyStopRefusal{Reason: "too few"}}, nil, nil
		}, "too few."},
	} {
		t.Run(title, func(t *testing.T) {
			r := calibrationByHand()
			c.change(r)
			d := writePage(t, Calibration(r, "policy.yaml"))
			d.expect(t, title, c.says)
			if loads := strings.Contains(d.text, "ckd serve"); loads == r.Refused() {
				t.Errorf("refused %v, and the page says how to load the policy: %v", r.Refused(), loads)
			}
		})
	}
}

// TestTooLittleToPromise expects a wide interval of the expected critical miss rate to come first.
func TestTooLittleToPromise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		low, high float64
		says      bool
	}{{0.03, 0.1, false}, {0.03, 0.13, true}, {0, 0.265, true}} { // without review 12.3% are missed
		r := calibrationByHand()
		r.EarlyStop, r.Expected.CriticalMissRateInterval, r.Lines = nil, &[2]float64{c.low, c.high}, nil
		lead := newCalibration(r, "policy.yaml").lead()
		if says := strings.HasPrefix(lead, "Too little to promise: up to "); says != c.says {
			t.Errorf("interval %v to %v: %s", c.low, c.high, lead)
		}
	}
}

// TestRefusedAndForcedSheets expects a refused page without a signature, and a forced one to say so in its title.
func TestRefusedAndForcedSheets(t *testing.T) {
	t.Parallel()
	r := calibrationByHand()
	r.EarlyStop, r.Unsupported, r.Policy = nil, "This recording cannot support a policy: one.", &policy.Policy{Name: "m"}
	if s := CalibrationSheet(r, "policy.yaml"); !strings.HasPrefix(s.Title, "FORCED") || len(s.Blanks) == 0 {
		t.Errorf("forced: %q with %d blanks", s.Title, len(s.Blanks))
	}
	r.Refusal, r.Policy, r.Chosen, r.Expected = &calibrate.Refusal{}, nil, nil, nil
	s := CalibrationSheet(r, "policy.yaml")
	if len(s.Blanks) > 0 || s.Sections[0].Title != "Why nothing is promised" || strings.Contains(s.Title, "FORCED") {
		t.Errorf("refused: %q with %d blanks and %q", s.Title, len(s.Blanks), s.Sections[0].Title)
	}
}

// TestAdviceAfterRefusal expects advice that follows from what was found.
func TestAdviceAfterRefusal(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*calibrate.Report){
		"dropout":    func(r *calibrate.Report) { r.Signs = []passcheck.Sign{{Name: passcheck.DropoutOff}} },
		"same order": func(r *calibrate.Report) { r.Signs = []passcheck.Sign{{Name: passcheck.ChanceLabels}} },
		"another model": func(r *calibrate.Report) {
			r.Gain = &eval.Gain{Without: 58, Missed: 50, Deferred: 9, Eligible: 99, Needed: 9}
		},
		"Record more: a ": func(r *calibrate.Report) {
			r.Gain = &eval.Gain{Without: 3, Missed: 3, Deferred: 9, Eligible: 99, Needed: 9}
		},
	} {
		r := calibrationByHand()
		r.EarlyStop, r.Refusal, r.Unsupported, r.Chosen, r.Expected = nil, &calibrate.Refusal{}, "This recording cannot support a policy: one.", nil, nil
		change(r)
		if next := strings.Join(newCalibration(r, "").next(), "\n"); !strings.Contains(next, says) {
			t.Errorf("expected %q, found %s", says, next)
		}
	}
}
