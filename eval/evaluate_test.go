package eval_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// goldenEvaluation is what an independent implementation computed of a
// recording: see the README of internal/recordings.
type goldenEvaluation struct {
	Summary struct {
		Pearson, Inflation, Fallback, Acc float64
		Reliable                          []float64
	}
	Policies map[string]struct {
		AUSC, FNR80, Acc80 float64
		Boot               float64 `json:"ausc_boot"`
		SD                 float64 `json:"ausc_sd"`
	}
	ProfileRaw        [][]float64 `json:"profile_raw"`
	ProfileNormalised [][]float64 `json:"profile_normalised"`
	Signatures        map[string]struct {
		N  int
		MI float64
		C  []float64
	}
	Confusion [][]float64
	Dominant  []float64
	Skewness  []struct {
		Median, Mean, P90 float64
		Reliable          map[string]float64
	}
	AllReliable float64 `json:"all_reliable"`
}

// recording is one of internal/recordings with its labels.
func recording(t *testing.T, name string) (*record.Passes, []int) {
	t.Helper()
	path := filepath.Join("..", "internal", "recordings", name)
	passes, err := record.ReadPasses(path+".passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(path + ".labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	return passes, labels
}

func table(t testing.TB, passes *record.Passes, spec decomp.Spec) *eval.Table {
	t.Helper()
	spec.Classes = passes.K
	table, err := eval.NewTable(t.Context(), passes, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var ctg = decomp.Spec{Critical: []int{1, 2}, Safe: []int{0}}

func TestEvaluateAgreesWithGolden(t *testing.T) {
	for _, name := range []string{"ctg-lowrank", "ctg-mcdropout", "ctg-ensemble"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("..", "internal", "recordings", "golden", name+".evaluate.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want goldenEvaluation
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			passes, labels := recording(t, name)
			const resamples = 400
			got, err := eval.Evaluate(t.Context(), table(t, passes, ctg), labels, eval.Options{
				Coverage: 0.8, Bootstrap: resamples, Seed: 42,
			})
			if err != nil {
				t.Fatal(err)
			}
			holdAgainst(t, got, &want, resamples)
		})
	}
}

func holdAgainst(t *testing.T, got *eval.Report, want *goldenEvaluation, resamples int) {
	// within 1e-9, relative beyond 1: the golden files have all digits.
	near := func(what string, got, want float64) {
		t.Helper()
		if d := math.Abs(got - want); !(d <= 1e-9*max(1, math.Abs(want))) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	all := func(what string, got, want []float64) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
		}
		for k := range want {
			near(what+" "+strconv.Itoa(k), got[k], want[k])
		}
	}
	near("pearson", got.Summary.Pearson, want.Summary.Pearson)
	near("inflation", got.Summary.Inflation, want.Summary.Inflation)
	near("fallback share", got.Summary.FallbackShare, want.Summary.Fallback)
	near("accuracy", got.Summary.Accuracy, want.Summary.Acc)
	near("all reliable", got.Summary.AllReliable, want.AllReliable)
	all("dominant", got.Dominant, want.Dominant)
	for k := range want.ProfileRaw {
		all("raw profile", got.Profiles.Raw[k], want.ProfileRaw[k])
		all("normalised profile", got.Profiles.Normalised[k], want.ProfileNormalised[k])
		all("confusion", got.Confusion.Matrix[k], want.Confusion[k])
	}
	for k, w := range want.Skewness {
		g := got.Skewness[k]
		all("skewness", []float64{g.Median, g.Mean, g.P90}, []float64{w.Median, w.Mean, w.P90})
		near("reliable", g.Reliable["0.3"], want.Summary.Reliable[k])
		if len(g.Reliable) != len(w.Reliable) {
			t.Errorf("%d thresholds, want %d", len(g.Reliable), len(w.Reliable))
		}
		for threshold, share := range w.Reliable {
			near("reliable under "+threshold, g.Reliable[threshold], share)
		}
	}
	if len(got.Signatures) != len(want.Signatures) {
		t.Errorf("%d signatures, want %d", len(got.Signatures), len(want.Signatures))
	}
	for _, g := range got.Signatures {
		w := want.Signatures[g.True+"->"+g.Predicted]
		if g.N != w.N {
			t.Errorf("signature %s->%s of %d, want %d", g.True, g.Predicted, g.N, w.N)
		}
		near("signature MI", g.MI, w.MI)
		all("signature", g.C, w.C)
	}
	found := 0
	for _, row := range got.Policies {
		w, isScore := want.Policies[row.Name]
		if row.Scope != policy.AllInputs || !isScore {
			continue
		}
		found++
		near(row.Name+" AUSC", row.AUSC.CriticalFNR, w.AUSC)
		near(row.Name+" critical FNR", row.CriticalFNR, w.FNR80)
		near(row.Name+" accuracy", row.Accuracy, w.Acc80)
		// The golden mean is of 200 resamples of its own. Four standard errors of
		// the difference; the standard deviation has a relative error of about
		// 1/sqrt(2*200) where it is normal, and here it is not quite.
		se := w.SD * math.Sqrt(1./200+1/float64(resamples))
		if d := math.Abs(row.Bootstrap.Mean - w.Boot); d > 4*se {
			t.Errorf("%s: bootstrap mean %v, want %v +- %v", row.Name, row.Bootstrap.Mean, w.Boot, se)
		}
		if r := row.Bootstrap.SD / w.SD; r < 0.75 || r > 1.33 {
			t.Errorf("%s: bootstrap sd %v, want about %v", row.Name, row.Bootstrap.SD, w.SD)
		}
	}
	if found != len(want.Policies) {
		t.Errorf("%d of %d golden scores found", found, len(want.Policies))
	}
}
