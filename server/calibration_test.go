package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// calibratedPolicies has a policy calibrated on three passes of MC dropout, one that does not say
// on what, and one that was not calibrated.
const calibratedPolicies = `
models:
  - name: calibrated
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
    primary: {score: mi, threshold: 1}
    calibrated:
      recording: {passes: 3}
      posterior: mc-dropout
      objective: coverage 0.8
      expected_coverage: {value: 0.75, low: 0.7, high: 0.8}
      expected_critical_miss_rate: {value: 0.125, low: 0.0625, high: 0.1875}
      certificate:
        {kind: learn-then-test, target: 0.1, confidence: 0.9, cases: 50, misses: 1, p_value: 0.03, statement: All is well.,
         bounds: critical-miss-rate, class: critical, groups: 40,
         further: [{bounds: critical-fnr, target: 0.2, cases: 45, misses: 1, p_value: 0.01}]}
  - name: unstated
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
    calibrated:
      certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.1, confidence: 0.9}
  - name: plain
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
`

func newCalibratedHarness(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	h.set(t, calibratedPolicies)
	return h
}

// expectMismatches checks which lines were logged about mismatches.
func (h *harness) expectMismatches(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, e := range h.logs.FilterMessageSnippet("inputs are not like those that the policy was calibrated on").All() {
		m := e.ContextMap()
		got = append(got, fmt.Sprintf("%s %v %v: %v, not %v", e.Level, m["model"], m["what"], m["got"], m["expected"]))
		if m["request_id"] == nil {
			t.Errorf("the line %v has no request id", e)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// inputs sends inputs with a number of passes, one group each.
func (s *clientStream) inputs(group uint64, passes ...int) {
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

// TestCallMismatch checks that calls log that their inputs are not like those of the calibration once a
// minute.
func TestCallMismatch(t *testing.T) {
	h := newCalibratedHarness(t)
	for range 3 {
		h.decompose(t, &ckdv1.DecomposeRequest{
			Model: "calibrated", Posterior: "ensemble", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 5, Values: slices.Repeat(safeRow, 10),
		})
	}
	h.expectMismatches(t, "warn calibrated passes: 2, not 3", "warn calibrated posterior: ensemble, not mc-dropout")
}

// TestStreamMismatch checks that a stream logs once each how its inputs differ from those of the calibration,
// and again once the policy of its inputs has changed, and only then.
func TestStreamMismatch(t *testing.T) {
	const passes, posterior = "warn calibrated passes: 2, not 3", "warn calibrated posterior: ensemble, not mc-dropout"
	h := newCalibratedHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "calibrated", Posterior: "ensemble"})
	st.inputs(1, 2, 2)
	h.set(t, calibratedPolicies)
	st.inputs(3, 2)
	want := []string{passes, posterior}
	h.expectMismatches(t, want...)

	st.sendBlock(&ckdv1.Block{Group: 4, InputIds: []string{""}, Passes: 2, Values: slices.Repeat(safeRow, 2)})
	h.eventually(t, 1, "ckd_inputs_open", "model", "calibrated")
	h.set(t, strings.Replace(calibratedPolicies, "{passes: 3}", "{passes: 4}", 1))
	st.inputs(5, 4)
	want = append(want, posterior)
	h.expectMismatches(t, want...)
	st.sendBlock(&ckdv1.Block{Group: 4, Final: true}) // of the calibration before
	if r := st.receive().GetResults(); len(r) != 1 || r[0].GetDecomposition() == nil {
		t.Fatalf("the input that was open: %v", r)
	}
	h.expectMismatches(t, want...)
	st.inputs(6, 2, 2)
	h.expectMismatches(t, append(want, "warn calibrated passes: 2, not 4")...)
	st.rest()
}

// TestCalibrationOfModels checks that ListModels describes the calibration of each policy.
func TestCalibrationOfModels(t *testing.T) {
	h := newCalibratedHarness(t)
	list, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*ckdv1.Calibration{
		"plain": nil,
		"calibrated": {
			Posterior: "mc-dropout", Passes: 3, Objective: "coverage 0.8",
			ExpectedCoverage:         &ckdv1.Share{Value: 0.75, Low: 0.7, High: 0.8},
			ExpectedCriticalMissRate: &ckdv1.Share{Value: 0.125, Low: 0.0625, High: 0.1875},
			Certificate: &ckdv1.Certificate{
				Kind: ckdv1.CertificateKind_CERTIFICATE_KIND_LEARN_THEN_TEST, Target: 0.1, Confidence: proto.Float64(0.9),
				Cases: 50, Misses: 1, PValue: proto.Float64(0.03), Statement: "All is well.",
				Bounds: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, CriticalClass: "critical", Groups: 40,
				Further: []*ckdv1.CertifiedLimit{{
					Bounds: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR, Target: 0.2, Cases: 45, Misses: 1, PValue: proto.Float64(0.01),
				}},
			},
		},
		"unstated": {Certificate: &ckdv1.Certificate{
			Kind: ckdv1.CertificateKind_CERTIFICATE_KIND_LEARN_THEN_TEST, Target: 0.1, Confidence: proto.Float64(0.9),
			Bounds: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE,
		}},
	}
	for _, m := range list.GetModels() {
		if name := m.GetPolicy().GetModel(); !proto.Equal(m.GetCalibration(), want[name]) {
			t.Errorf("%s: %v, want %v", name, m.GetCalibration(), want[name])
		}
	}
}
