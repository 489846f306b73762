package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// calibratedPolicies: one that was calibrated on three passes of MC dropout, one
// that does not say on what, one that was not.
const calibratedPolicies = `
models:
  - name: told
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
    primary: {score: mi, threshold: 1}
    calibration:
      recording: {passes: 3}
      posterior: mc-dropout
      objective: coverage 0.8
      expected_coverage: {value: 0.75, low: 0.7, high: 0.8}
      expected_critical_fnr: {value: 0.25}
      certificate:
        {kind: learn-then-test, target: 0.1, confidence: 0.9, cases: 50, misses: 1, p_value: 0.03, statement: All is well.}
  - name: untold
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
    calibration:
      certificate: {kind: conformal-risk-control, target: 0.1}
  - name: plain
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
`

func newCalibratedHarness(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t, DefaultLimits())
	if err := h.server.SetPolicies(parsePolicies(t, calibratedPolicies)); err != nil {
		t.Fatal(err)
	}
	return h
}

// mismatches that were counted for a model, of passes and of the posterior.
func (h *harness) mismatches(t *testing.T, model string) [2]float64 {
	t.Helper()
	const name = "ckd_calibration_mismatches_total"
	return [2]float64{
		h.metric(t, name, "model", model, "what", "passes"), h.metric(t, name, "model", model, "what", "posterior"),
	}
}

// mismatchLines are what was logged of them.
func (h *harness) mismatchLines() []string {
	var lines []string
	for _, e := range h.logs.All() {
		if strings.HasPrefix(e.Message, "inputs are not like those that the policy was calibrated on") {
			fields := e.ContextMap()
			lines = append(lines, fmt.Sprintf("%s %v %v: %v, not %v", e.Level, fields["model"], fields["what"], fields["got"], fields["expected"]))
			if fields["request_id"] == nil {
				lines = append(lines, "a line without a request id")
			}
		}
	}
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// inputs of so many passes, one group each.
func (s *stream) inputs(group uint64, passes ...int) {
	s.t.Helper()
	for i, n := range passes {
		s.sendBlock(&ckdv1.Block{
			Group: group + uint64(i), InputIds: []string{""}, Passes: uint32(n), Values: slices.Repeat(safeRow, n), Final: true,
		})
		if r := s.receive().GetResults(); len(r) != 1 || r[0].GetDecomposition() == nil {
			s.t.Fatalf("an input of %d passes: %v", n, r)
		}
	}
}

// TestStreamMismatch: inputs with another number of passes, or of a client that
// states another posterior, are counted each, and logged once on a stream.
func TestStreamMismatch(t *testing.T) {
	const (
		passes    = "warn told passes: 2, not 3"
		posterior = "warn told posterior: ensemble, not mc-dropout"
	)
	for name, c := range map[string]struct {
		model, posterior string
		passes           []int
		counted          [2]float64
		logged           []string
	}{
		"nothing stated":                         {"told", "", []int{3, 3}, [2]float64{0, 0}, nil},
		"as calibrated":                          {"told", "mc-dropout", []int{3, 3}, [2]float64{0, 0}, nil},
		"other passes":                           {"told", "", []int{3, 2, 4, 3, 2}, [2]float64{3, 0}, []string{passes}},
		"other posterior":                        {"told", "ensemble", []int{3, 3}, [2]float64{0, 2}, []string{posterior}},
		"both":                                   {"told", "ensemble", []int{3, 2, 2}, [2]float64{2, 3}, []string{posterior, passes}},
		"a calibration of which nothing is told": {"untold", "ensemble", []int{2, 3}, [2]float64{0, 0}, nil},
		"no calibration":                         {"plain", "ensemble", []int{2, 3}, [2]float64{0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCalibratedHarness(t)
			st := h.open(t, &ckdv1.StreamHeader{Model: c.model, Posterior: c.posterior})
			st.inputs(0, c.passes...)
			if got := h.mismatches(t, c.model); got != c.counted {
				t.Errorf("counted %v, want %v", got, c.counted)
			}
			wantLines(t, h.mismatchLines(), c.logged...)

			other := h.open(t, &ckdv1.StreamHeader{Model: c.model, Posterior: c.posterior})
			other.inputs(0, c.passes...)
			wantLines(t, h.mismatchLines(), slices.Concat(c.logged, c.logged)...)
			st.rest()
			other.rest()
		})
	}
}

// TestMismatchIsOfDecisions: inputs that fail, or are given up, are not counted.
func TestMismatchIsOfDecisions(t *testing.T) {
	h := newCalibratedHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "told", Posterior: "ensemble"})
	st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"too few"}, Values: safeRow, Final: true})
	st.sendBlock(&ckdv1.Block{Group: 2, InputIds: []string{"given up"}, Passes: 2, Values: slices.Repeat(safeRow, 2)})
	expectReasons(t, st.receive(), map[string]ckdv1.ErrorReason{"too few": ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES})
	h.eventually(t, 1, "ckd_inputs_open")
	st.cancel()
	h.eventually(t, 0, "ckd_inputs_open")
	bad := &ckdv1.DecomposeRequest{
		Model: "told", Posterior: "ensemble", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 1, Values: []float32{-1, 2, -1, 2},
	}
	if r, err := h.client.Decompose(t.Context(), bad); err != nil || r.GetResults()[0].GetError() == nil {
		t.Errorf("results %v, error %v: want the input refused", r, err)
	}
	if got := h.mismatches(t, "told"); got != [2]float64{} {
		t.Errorf("counted %v, want none", got)
	}
	wantLines(t, h.mismatchLines())
}

// TestCallMismatch: the inputs of calls are counted as those of streams, and
// logged once a minute, whichever call they are of.
func TestCallMismatch(t *testing.T) {
	h := newCalibratedHarness(t)
	for range 3 {
		_, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{
			Model: "told", Posterior: "ensemble", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 5, Values: slices.Repeat(safeRow, 10),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := h.mismatches(t, "told"); got != [2]float64{15, 15} {
		t.Errorf("counted %v, want 15 each", got)
	}
	wantLines(t, h.mismatchLines(), "warn told passes: 2, not 3", "warn told posterior: ensemble, not mc-dropout")
}

// TestRecalibrated: a calibration that alone has changed, so that the hash has
// not, is in force for the next input, in the gauges and in what clients are told.
func TestRecalibrated(t *testing.T) {
	h := newCalibratedHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "told", Posterior: "ensemble"})
	st.inputs(1, 2)
	if got := h.mismatches(t, "told"); got != [2]float64{1, 1} {
		t.Errorf("counted %v, want one each", got)
	}
	set := func(was, is string) {
		t.Helper()
		if err := h.server.SetPolicies(parsePolicies(t, strings.Replace(calibratedPolicies, was, is, 1))); err != nil {
			t.Fatal(err)
		}
	}
	model := func() *ckdv1.Model {
		t.Helper()
		reply, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "told"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetModel()
	}
	hash := model().GetPolicy().GetHash()
	if got := h.metric(t, "ckd_policy_expected_coverage", "model", "told"); got != 0.75 {
		t.Errorf("expected coverage %v, want 0.75", got)
	}

	set("recording: {passes: 3}\n      posterior: mc-dropout\n      objective: coverage 0.8\n      expected_coverage: {value: 0.75",
		"recording: {passes: 2}\n      posterior: ensemble\n      expected_coverage: {value: 0.7")
	st.inputs(2, 2, 2)
	if got := h.mismatches(t, "told"); got != [2]float64{1, 1} {
		t.Errorf("counted %v after the reload, want no more", got)
	}
	if got := h.metric(t, "ckd_policy_expected_coverage", "model", "told"); got != 0.7 {
		t.Errorf("expected coverage %v, want 0.7", got)
	}
	if m := model(); m.GetCalibration().GetPosterior() != "ensemble" || m.GetPolicy().GetHash() != hash {
		t.Errorf("model %v, want the new calibration and the hash as it was", m)
	}
	st.rest()
}

// TestRecalibratedIsLogged: a stream logs its mismatches anew once the policy of
// its inputs has changed, and not again for those that were open before, nor for
// a reload that changes nothing.
func TestRecalibratedIsLogged(t *testing.T) {
	const passes, posterior = "warn told passes: 2, not 3", "warn told posterior: ensemble, not mc-dropout"
	h := newCalibratedHarness(t)
	set := func(text string) {
		t.Helper()
		if err := h.server.SetPolicies(parsePolicies(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	st := h.open(t, &ckdv1.StreamHeader{Model: "told", Posterior: "ensemble"})
	st.inputs(1, 2, 2)
	set(calibratedPolicies)
	st.inputs(3, 2)
	want := []string{passes, posterior}
	wantLines(t, h.mismatchLines(), want...)

	st.sendBlock(&ckdv1.Block{Group: 4, InputIds: []string{""}, Passes: 2, Values: slices.Repeat(safeRow, 2)})
	h.eventually(t, 1, "ckd_inputs_open", "model", "told")
	set(strings.Replace(calibratedPolicies, "{passes: 3}", "{passes: 4}", 1))
	st.inputs(5, 4)
	want = append(want, posterior)
	wantLines(t, h.mismatchLines(), want...)
	st.sendBlock(&ckdv1.Block{Group: 4, Final: true}) // of the calibration before
	if r := st.receive().GetResults(); len(r) != 1 || r[0].GetDecomposition() == nil {
		t.Fatalf("the input that was open: %v", r)
	}
	wantLines(t, h.mismatchLines(), want...)
	st.inputs(6, 2, 2)
	wantLines(t, h.mismatchLines(), append(want, "warn told passes: 2, not 4")...)
	st.rest()
}

// TestCalibrationIsTold: what clients are told of it.
func TestCalibrationIsTold(t *testing.T) {
	h := newCalibratedHarness(t)
	list, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	confidence, pValue := 0.9, 0.03
	want := map[string]*ckdv1.Calibration{
		"plain": nil,
		"told": {
			Posterior: "mc-dropout", Passes: 3, Objective: "coverage 0.8",
			ExpectedCoverage:    &ckdv1.Share{Value: 0.75, Low: 0.7, High: 0.8},
			ExpectedCriticalFnr: &ckdv1.Share{Value: 0.25, Low: 0, High: 1},
			Certificate: &ckdv1.Certificate{
				Kind: ckdv1.CertificateKind_CERTIFICATE_KIND_LEARN_THEN_TEST, Target: 0.1, Confidence: &confidence,
				Cases: 50, Misses: 1, PValue: &pValue, Statement: "All is well.",
			},
		},
		"untold": {Certificate: &ckdv1.Certificate{
			Kind: ckdv1.CertificateKind_CERTIFICATE_KIND_CONFORMAL_RISK_CONTROL, Target: 0.1,
		}},
	}
	for _, m := range list.GetModels() {
		if name := m.GetPolicy().GetModel(); !proto.Equal(m.GetCalibration(), want[name]) {
			t.Errorf("%s: %v, want %v", name, m.GetCalibration(), want[name])
		}
	}
}
