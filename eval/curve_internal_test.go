package eval

import (
	"math"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

// drawRanking draws outcomes and a ranking of either scope, with ties among its keys.
func drawRanking(t *rapid.T, most int) (*ranking, []outcome) {
	n := rapid.IntRange(1, most).Draw(t, "N")
	values := rapid.SampledFrom([]int{0, 3, 1000}).Draw(t, "values") // one, few, many
	labels, predicted, key := make([]int, n), make([]int, n), make([]float64, n)
	for i := range key {
		labels[i] = rapid.IntRange(0, 2).Draw(t, "label")
		predicted[i] = rapid.IntRange(0, 2).Draw(t, "predicted")
		key[i] = float64(rapid.IntRange(0, values).Draw(t, "key"))
	}
	table := &Table{Inputs: n, K: 3, Predicted: predicted}
	table.Spec.Critical = []int{1, 2}
	scope := rapid.SampledFrom([]policy.Scope{policy.AllInputs, policy.PredictedSafe}).Draw(t, "scope")
	r := newRanking(table, "drawn", scope, key)
	return r, outcomes(labels, predicted, []bool{false, true, true})
}

// TestResampleEqualsSorting compares the walk of a resample with writing the resample out, sorting it
// and taking, of the tie that a cut goes through, the share that is retained: at every cut.
func TestResampleEqualsSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, inputs := drawRanking(t, 60)
		grouped := newGroups(rapid.SliceOfN(rapid.IntRange(0, 9), len(inputs), len(inputs)).Draw(t, "groups"))
		if rapid.Bool().Draw(t, "independent") {
			grouped = nil
		}
		resample := newResample(inputs, grouped)
		requested := rapid.Float64Range(0.001, 1).Draw(t, "coverage")
		seed := rapid.Uint64().Draw(t, "seed")
		for b := range uint64(3) { // the memory is used again
			resample.draw(seed, b)
			g := newGrid(len(resample.drawn), requested)
			var got [coverages + 1]counts
			g.walk(r.order, r.ties, resample.times, &got)

			keys := make([]float64, len(resample.drawn))
			for d, i := range resample.drawn {
				keys[d] = r.Key[i]
			}
			slices.Sort(keys)
			want := counts{}
			for c, cut := range g.cuts {
				if c == 0 || cut != g.cuts[c-1] { // few inputs have few distinct cuts
					want = counts{}
				}
				if cut > 0 && want == (counts{}) {
					last := keys[cut-1]
					below, _ := slices.BinarySearch(keys, last)
					tied := 0
					for _, k := range keys {
						tied += index(k == last)
					}
					for _, i := range resample.drawn {
						share := 0.0
						switch {
						case r.Key[i] < last:
							share = 1
						case r.Key[i] == last:
							share = float64(int(cut)-below) / float64(tied)
						}
						critical, wrong := float64(index(inputs[i]&isCritical != 0)), float64(index(inputs[i]&isWrong != 0))
						want.retained += share
						want.critical += share * critical
						want.wrong += share * wrong
						want.criticalWrong += share * critical * wrong
						want.missed += share * float64(index(inputs[i]&isMissed != 0))
						want.called += share * float64(index(inputs[i]&isTreated != 0))
					}
				}
				near := cmpopts.EquateApprox(0, 1e-9) // sums of at most some hundred shares
				if diff := gocmp.Diff(want, got[c], near, gocmp.AllowUnexported(counts{})); diff != "" {
					t.Fatalf("at cut %d (-want +got):\n%s", cut, diff)
				}
			}
		}
	})
}

// TestWinShares expects scores to share a win, and other rankings to win only against all scores.
func TestWinShares(t *testing.T) {
	rows := []*Row{{Name: "mi"}, {Name: "cbec"}, {Name: "entropy"}, {Name: "policy"}, {Name: "any-critical"}}
	for r, samples := range [][]Figure{
		{0.1, 0.2, 0.3, 0.4},
		{0.1, 0.1, 0.4, 0.5},
		{0.2, 0.3, 0.5, 0.6},
		{0.05, 0.1, 0.2, 0.4}, // lower than every score in two
		{0, 0, 0, 0},
	} {
		rows[r].Bootstrap.Samples = samples
	}
	winShares(rows, inPaper, 4)
	for r, want := range []Figure{0.625, 0.375, 0, 0.5, 1} {
		if got := rows[r].Bootstrap.WinShare; got != want {
			t.Errorf("%s wins %v, want %v", rows[r].Name, got, want)
		}
	}
	for _, p := range pairwise(rows) {
		want, known := map[string]Figure{"mi<cbec": 0.5, "cbec<mi": 0.25, "entropy<mi": 0, "mi<entropy": 1}[p.Row+"<"+p.Column]
		if known && p.P != want {
			t.Errorf("P(%s < %s) is %v, want %v", p.Row, p.Column, p.P, want)
		}
	}
	if n := len(pairwise(rows)); n != 20 {
		t.Errorf("%d pairs of 5 rows", n)
	}
}

func TestResampleAllocatesNothing(t *testing.T) {
	inputs := make([]outcome, 200)
	key := make([]float64, 200)
	for i := range key {
		inputs[i], key[i] = outcome(i)%4, float64(i/3)
	}
	r := newRanking(&Table{Inputs: 200, K: 3, Predicted: make([]int, 200)}, "", policy.AllInputs, key)
	g, resample := newGrid(200, 0.8), newResample(inputs, nil)
	s := newSamples(1)
	var counted [coverages + 1]counts
	allocations := testing.AllocsPerRun(10, func() {
		resample.draw(1, 2)
		g.walk(r.order, r.ties, resample.times, &counted)
		s.set(0, g, &counted, 0)
	})
	if allocations != 0 {
		t.Errorf("%v allocations a resample", allocations)
	}
}

func TestInterval(t *testing.T) { // NumPy: quantile, std(ddof=1)
	got := interval([]Figure{4, undefined, 1, 3, 2, 10})
	want := Interval{Mean: 4, SD: 3.5355339059327378, Low: 1.1, High: 9.4}
	for _, d := range []Figure{got.Mean - want.Mean, got.SD - want.SD, got.Low - want.Low, got.High - want.High} {
		if math.Abs(float64(d)) > 1e-12 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := interval([]Figure{3}); got != (Interval{Mean: 3, Low: 3, High: 3}) {
		t.Errorf("of one: %+v", got)
	}
}
