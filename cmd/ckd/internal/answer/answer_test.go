package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReasonsAreTheWordsOfTheWire expects the daemon's words for whatever decomp refuses: those of
// ErrorReason, in lower case.
func TestReasonsAreTheWordsOfTheWire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want ckdv1.ErrorReason
	}{
		{&decomp.RowError{Fault: decomp.WrongClasses}, ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH},
		{&decomp.RowError{Fault: decomp.NotFinite}, ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE},
		{&decomp.RowError{Fault: decomp.Negative}, ckdv1.ErrorReason_ERROR_REASON_NEGATIVE},
		{&decomp.RowError{Fault: decomp.AboveOne}, ckdv1.ErrorReason_ERROR_REASON_ABOVE_ONE},
		{&decomp.RowError{Fault: decomp.SumNotOne}, ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE},
		{&decomp.RowError{Fault: decomp.NotPositive}, ckdv1.ErrorReason_ERROR_REASON_NOT_POSITIVE},
		{&decomp.RowError{Fault: decomp.SumNotFinite}, ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE},
		{&decomp.RowError{Fault: decomp.NotLogits, Pass: -1}, ckdv1.ErrorReason_ERROR_REASON_NOT_LOGITS},
		{&decomp.RowError{Fault: decomp.NotLogits + 1}, ckdv1.ErrorReason_ERROR_REASON_INTERNAL},
		{&decomp.PassesError{Got: 1, Least: 2}, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES},
		{&decomp.PassesError{Got: 2, Least: 1, Most: 1}, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES},
		{errors.New("something else"), ckdv1.ErrorReason_ERROR_REASON_INTERNAL},
	} {
		wrapped := fmt.Errorf("input 3: %w", c.err)
		if got, want := reasonOf(wrapped), Word("ERROR_REASON_", c.want); got != want {
			t.Errorf("%v: %s, expected %s", c.err, got, want)
		}
	}
}

func TestNumbersReadBackAsThemselves(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, 1, 0.1, 1.0 / 3, 5e-324, math.MaxFloat64, -2.5e-9, 1e21} {
		text, err := json.Marshal(nullable(v))
		if err != nil {
			t.Fatal(err)
		}
		var back float64
		if err := json.Unmarshal(text, &back); err != nil || back != v {
			t.Errorf("%v is written %s and read %v (%v)", v, text, back, err)
		}
	}
	for _, v := range []any{noNumber, noClass} {
		if text, err := json.Marshal(v); err != nil || string(text) != "null" {
			t.Errorf("%v is written %s (%v), expected null", v, text, err)
		}
	}
	if text, err := json.Marshal(nullable(math.Inf(1))); err == nil {
		t.Errorf("infinity is written %s, expected an error", text)
	}
}

// TestWireLineKnowsWhatWasNotAskedFor expects null, not zero, for what the detail of a reply leaves
// out.
func TestWireLineKnowsWhatWasNotAskedFor(t *testing.T) {
	t.Parallel()
	some, dominant := 0.25, uint32(1)
	d := &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{
			Action: ckdv1.Action_ACTION_DEFER, Score: ckdv1.Score_SCORE_C_CRIT_MAX, Value: .5, Threshold: &some,
			Gate: ckdv1.GateOutcome_GATE_OUTCOME_PRIMARY, DecidingClass: &dominant,
			Reason: ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD,
		},
		Predicted: 1, Passes: 30,
	}
	const (
		start  = `{"index":7,"predicted":1,`
		scores = `"scores":{"entropy":null,"mi":null,"maxprob":null,"eu_var":null,"var_crit":null,"eu_var_crit":null,` +
			`"ova_mi":null,"c_crit_sum":null,"c_crit_max":null,"cbec":null,"p_critical":null},`
		flags = `"degenerate":false,"saturated":false,"passes":30,`
		end   = `"decision":{"action":"defer","score":"c_crit_max","value":0.5,"threshold":0.25,"gate":"primary",` +
			`"class":1,"reason":"above_threshold"}}`
	)
	check := func(detail ckdv1.Detail, want string) {
		t.Helper()
		if got, err := json.Marshal(FromWire(7, d, detail)); err != nil || string(got) != want {
			t.Errorf("%v: %v\n%s\nexpected\n%s", detail, err, got, want)
		}
	}
	check(ckdv1.Detail_DETAIL_DECISION, start+`"mean":null,"variance":null,"third_moment":null,"c":null,`+
		`"skewness":null,"m":null,"entropy":null,"expected_entropy":null,"mi":null,"sum_c":null,`+scores+flags+
		`"dominant":null,"c3":null,"sum_c_top":null,"sum_c_weighted":null,"pairs":null,`+end)

	d.Mean, d.C, d.Skewness, d.Dominant = []float64{.1, .9}, []float64{0, .25}, []float64{0, .5}, &dominant
	d.Mi, d.SumC = .125, .25 // and an entropy of 0
	check(ckdv1.Detail_DETAIL_VECTORS, start+`"mean":[0.1,0.9],"variance":null,"third_moment":null,"c":[0,0.25],`+
		`"skewness":[0,0.5],"m":null,"entropy":0,"expected_entropy":null,"mi":0.125,"sum_c":0.25,`+scores+flags+
		`"dominant":1,"c3":null,"sum_c_top":null,"sum_c_weighted":null,"pairs":null,`+end)
}

func TestLinesAreNotEscapedForHTML(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	if err := NewEncoder(&text).Encode(Refusal{1, Reason{"internal", "0 < 1 & <b>"}}); err != nil {
		t.Fatal(err)
	}
	if want := `{"index":1,"error":{"reason":"internal","message":"0 < 1 & <b>"}}` + "\n"; text.String() != want {
		t.Errorf("%s, expected %s", text.String(), want)
	}
}
