package eval_test

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// goldenEvaluation holds what an independent implementation computed from a recording.
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

// recordings is the folder of recordings. Its README says what an independent implementation
// computed.
const recordings = "../internal/recordings/"

// recordedPasses reads a recording without labels.
func recordedPasses(t *testing.T, name string) eval.Recording {
	t.Helper()
	passes, err := record.ReadPasses(recordings+name+".passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fromFile(passes)
}

// recording reads a recording with its labels.
func recording(t *testing.T, name string) (r eval.Recording, labels []int) {
	t.Helper()
	r = recordedPasses(t, name)
	var err error
	if r.Labels, err = record.ReadLabels(recordings + name + ".labels.npy"); err != nil {
		t.Fatal(err)
	}
	return r, r.Labels
}

// golden reads what an independent implementation computed.
func golden(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(recordings + "golden/" + file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// closeTo compares numbers to 1e-9 relative, as precise as the golden figures are.
func closeTo[F ~float64](t *testing.T, what string, got F, want float64) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= 1e-9*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// fromFile returns recorded passes without labels.
func fromFile(p *record.Passes) eval.Recording {
	return eval.Recording{Name: p.Name, Classes: p.K, Passes: decomp.Tensor{
		Passes: p.S, Inputs: p.N, Layout: decomp.Layout(p.Layout), Float32: p.Float32, Float64: p.Float64,
	}}
}

func table(t testing.TB, r eval.Recording, spec decomp.Spec) *eval.Table {
	t.Helper()
	table, err := eval.NewTable(t.Context(), r, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var ctg = decomp.Spec{Critical: []int{1, 2}, Safe: []int{0}}

func TestEvaluateAgreesWithGolden(t *testing.T) {
	for _, name := range []string{"ctg-lowrank", "ctg-mcdropout", "ctg-ensemble"} {
		t.Run(name, func(t *testing.T) {
			var want goldenEvaluation
			golden(t, name+".evaluate.json", &want)
			passes, labels := recording(t, name)
			const resamples = 400
			o := eval.Options{Coverage: 0.8, Bootstrap: resamples, Seed: 42}
			whole := table(t, passes, ctg)
			report := evaluate(t, whole, labels, o)
			holdAgainst(t, report, &want, resamples)
			// The golden implementation takes ties in the order of the file: scores that are ranks in that
			// order have its figures.
			o.Bootstrap = 0
			inOrder := whole.Select(numbers(whole.Inputs))
			for s, score := range whole.Scores {
				for rank, i := range stableOrder(score) {
					inOrder.Scores[s][i] = float64(rank)
				}
			}
			holdRankingsAgainst(t, evaluate(t, inOrder, labels, o), &want, func(string) bool { return true })
			untied := func(name string) bool {
				score, _ := decomp.ParseScore(name)
				return len(slices.Compact(slices.Sorted(slices.Values(whole.Scores[score])))) == whole.Inputs
			}
			holdRankingsAgainst(t, report, &want, untied)
		})
	}
}

// numbersOf returns figures as numbers.
func numbersOf(figures []eval.Figure) []float64 {
	var all []float64
	for _, f := range figures {
		all = append(all, float64(f))
	}
	return all
}

func holdAgainst(t *testing.T, got *eval.Report, want *goldenEvaluation, resamples int) {
	// Compare to 1e-9, relative above 1: the golden files have all digits.
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
	near("pearson", float64(got.Summary.Pearson), want.Summary.Pearson)
	near("inflation", float64(got.Summary.Inflation), want.Summary.Inflation)
	near("fallback share", float64(got.Summary.FallbackShare), want.Summary.Fallback)
	near("accuracy", got.Summary.Accuracy, want.Summary.Acc)
	near("all reliable", got.Summary.AllReliable, want.AllReliable)
	all("dominant", got.Dominant, want.Dominant)
	for k := range want.ProfileRaw {
		all("raw profile", numbersOf(got.Profiles.Raw[k]), want.ProfileRaw[k])
		all("normalised profile", numbersOf(got.Profiles.Normalised[k]), want.ProfileNormalised[k])
		all("confusion", got.Confusion.Matrix[k], want.Confusion[k])
	}
	for k, w := range want.Skewness {
		g := got.Skewness[k]
		all("skewness", numbersOf([]eval.Figure{g.Median, g.Mean, g.P90}), []float64{w.Median, w.Mean, w.P90})
		near("reliable", float64(g.Reliable["0.3"]), want.Summary.Reliable[k])
		if len(g.Reliable) != len(w.Reliable) {
			t.Errorf("%d thresholds, want %d", len(g.Reliable), len(w.Reliable))
		}
		for threshold, share := range w.Reliable {
			near("reliable under "+threshold, float64(g.Reliable[threshold]), share)
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
		// The golden mean is of 200 other resamples, so allow four standard errors of the
		// difference. The relative error of the standard deviation is about 1/sqrt(2*200) for a
		// normal figure; this one is nearly normal.
		se := w.SD * math.Sqrt(1./200+1/float64(resamples))
		if d := math.Abs(float64(row.BootstrapPaper.Mean) - w.Boot); d > 4*se {
			t.Errorf("%s: bootstrap mean %v, want %v +- %v", row.Name, row.BootstrapPaper.Mean, w.Boot, se)
		}
		if r := float64(row.BootstrapPaper.SD) / w.SD; r < 0.75 || r > 1.33 {
			t.Errorf("%s: bootstrap sd %v, want about %v", row.Name, row.BootstrapPaper.SD, w.SD)
		}
	}
	if found != len(want.Policies) {
		t.Errorf("%d of %d golden scores found", found, len(want.Policies))
	}
}

// holdRankingsAgainst compares the figures of some scores.
func holdRankingsAgainst(t *testing.T, got *eval.Report, want *goldenEvaluation, some func(score string) bool) {
	t.Helper()
	for name, w := range want.Policies {
		if !some(name) {
			continue
		}
		row := row(t, got, name, policy.AllInputs)
		for _, f := range []struct {
			what      string
			got, want float64
		}{
			{"AUSC", float64(row.AUSCPaper.CriticalFNR), w.AUSC}, {"critical FNR", float64(row.CriticalFNR), w.FNR80},
			{"accuracy", float64(row.Accuracy), w.Acc80},
		} {
			if !(math.Abs(f.got-f.want) <= 1e-9) {
				t.Errorf("%s of %s: %v, want %v", f.what, name, f.got, f.want)
			}
		}
	}
}

// stableOrder returns the inputs by ascending scores, those of one score in the order of the file.
func stableOrder(score []float64) []int {
	order := numbers(len(score))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score[a], score[b]) })
	return order
}
