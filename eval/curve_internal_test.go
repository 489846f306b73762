package eval

import (
	"cmp"
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
			for c, cut := range g.cuts {
				want := counts{}
				if cut > 0 {
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

// TestResampleIsWithReplacement expects an input to be missing from a resample with chance
// (1-1/N)^N, and all inputs to be drawn equally often.
func TestResampleIsWithReplacement(t *testing.T) {
	const n, resamples = 100, 2000
	r := newResample(make([]outcome, n), nil)
	missing, times := 0, make([]int, n)
	for b := range uint64(resamples) {
		r.draw(1, b)
		total := 0
		for i, o := range r.times {
			missing += index(o == 0)
			times[i] += int(o >> flagBits)
			total += int(o >> flagBits)
		}
		if total != n {
			t.Fatalf("%d drawn, want %d", total, n)
		}
	}
	if got, want := float64(missing)/n/resamples, math.Pow(1-1./n, n); math.Abs(got-want) > 0.005 {
		t.Errorf("share missing %v, want %v", got, want)
	}
	for i, got := range times { // five standard deviations of sqrt(2000)
		if math.Abs(float64(got-resamples)) > 225 {
			t.Errorf("input %d drawn %d times, want about %d", i, got, resamples)
		}
	}
}

// TestCutsOfGrid expects the cuts of the 200 coverages, with the coverage asked for in its place.
func TestCutsOfGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5000).Draw(t, "N")
		requested := rapid.OneOf(rapid.Float64Range(1e-9, 1), rapid.Map(rapid.IntRange(0, coverages-1), coverage)).Draw(t, "coverage")
		g := newGrid(n, requested)
		if !slices.IsSorted(g.cuts[:]) || g.cuts[g.requested] != uint32(Kept(requested, n)) {
			t.Fatalf("cuts %v, of them %d that of %v", g.cuts, g.requested, requested)
		}
		for c := range coverages {
			if got, want := g.cuts[g.cut(c)], uint32(Kept(coverage(c), n)); got != want {
				t.Fatalf("coverage %v retains %d of %d, want %d", coverage(c), got, n, want)
			}
		}
	})
}

// TestWholeCurveOverAllOrders compares the expectation over ties with the mean over every order of
// the inputs that agrees with the keys.
func TestWholeCurveOverAllOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, inputs := drawRanking(t, 6)
		var aurcs, augrcs []float64
		permutations(len(inputs), func(order []int32) {
			if !slices.IsSortedFunc(order, func(a, b int32) int { return cmp.Compare(r.Key[a], r.Key[b]) }) {
				return
			}
			n, errors, aurc, augrc := float64(len(order)), 0.0, 0.0, 0.0
			for j, i := range order {
				before := errors
				errors += float64(index(inputs[i]&isWrong != 0))
				aurc += errors / float64(j+1) / n
				augrc += (before + errors) / 2 / n / n
			}
			aurcs, augrcs = append(aurcs, aurc), append(augrcs, augrc)
		})
		aurc, augrc := wholeCurve(r, inputs)
		if math.Abs(aurc-mean(aurcs)) > 1e-12 || math.Abs(augrc-mean(augrcs)) > 1e-12 {
			t.Fatalf("AURC %v, AUGRC %v, want %v, %v: the means over %d orders", aurc, augrc, mean(aurcs), mean(augrcs),
				len(aurcs))
		}
	})
}

// permutations calls a function with each permutation of n numbers.
func permutations(n int, each func([]int32)) {
	order := inputsOf(n)
	var from func(at int)
	from = func(start int) {
		if start == n {
			each(order)
			return
		}
		for i := start; i < n; i++ {
			order[start], order[i] = order[i], order[start]
			from(start + 1)
			order[start], order[i] = order[i], order[start]
		}
	}
	from(0)
}

// TestAUGRCByAUROC checks the identity of Traub et al. (2024): with the accuracy a and the AUROC of
// the score for errors, AUGRC = (1-AUROC) a (1-a) + (1-a)^2/2.
func TestAUGRCByAUROC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, inputs := drawRanking(t, 60)
		var right, wrong []float64
		for i, o := range inputs {
			if o&isWrong == 0 {
				right = append(right, r.Key[i])
			} else {
				wrong = append(wrong, r.Key[i])
			}
		}
		above := 0.0
		for _, w := range wrong {
			for _, c := range right {
				above += float64(index(w > c)) + float64(index(w == c))/2
			}
		}
		a := float64(len(right)) / float64(len(inputs))
		want := (1-ratio(above, float64(len(right)*len(wrong))))*a*(1-a) + (1-a)*(1-a)/2
		if _, augrc := wholeCurve(r, inputs); math.Abs(augrc-want) > 1e-12 {
			t.Fatalf("AUGRC %v, want %v", augrc, want)
		}
	})
}

func TestLargestTie(t *testing.T) {
	for _, c := range []struct {
		keys []float64
		want int
	}{
		{[]float64{1}, 1}, {[]float64{1, 2, 3}, 1}, {[]float64{2, 1, 2, 3, 1, 2}, 3},
		{[]float64{math.Inf(-1), math.Inf(-1), 1}, 1}, {[]float64{math.Inf(-1)}, 0},
	} {
		r := &ranking{Key: c.keys, order: ascending(c.keys)}
		if got := largestTie(r); got != c.want {
			t.Errorf("keys %v: %d, want %d", c.keys, got, c.want)
		}
	}
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

// TestSamples compares the figures of a resample with those of its counts.
func TestSamples(t *testing.T) {
	g, s := newGrid(10, 0.8), newSamples(Options{Bootstrap: 2})
	var counted [coverages + 1]counts
	for c := range counted {
		counted[c] = counts{retained: 10, critical: 4, missed: 4} // FNR 1
	}
	counted[g.requested] = counts{retained: 8, critical: 4, missed: 1, criticalWrong: 3, wrong: 2}
	s.set(1, g, &counted, 0)
	got := []Figure{s.ausc[1], s.criticalFNR[1], s.criticalError[1], s.accuracy[1]}
	for f, want := range []Figure{0.95, 0.25, 0.75, 0.75} {
		if math.Abs(float64(got[f]-want)) > 1e-12 {
			t.Errorf("figure %d is %v, want %v", f, got[f], want)
		}
	}
}

// TestBand expects the 95% interval at each coverage.
func TestBand(t *testing.T) {
	s := newSamples(Options{Bootstrap: 3, Bands: true})
	for b, v := range []float32{0.5, 0.25, 0} {
		s.band[b][7] = v
	}
	low, high := s.limits()
	if len(low) != coverages || math.Abs(low[7]-0.0125) > 1e-12 || math.Abs(high[7]-0.4875) > 1e-12 || high[8] != 0 {
		t.Errorf("band of %d from %v to %v", len(low), low[7], high[7])
	}
	if s := newSamples(Options{Bootstrap: 3 * mostBandSamples, Bands: true}); len(s.band) != mostBandSamples {
		t.Errorf("a band of %d resamples", len(s.band))
	}
}

func TestResampleAllocatesNothing(t *testing.T) {
	inputs := make([]outcome, 200)
	key := make([]float64, 200)
	for i := range key {
		inputs[i], key[i] = outcome(i)%4, float64(i/3)
	}
	r := newRanking(&Table{Inputs: 200, K: 3, Predicted: make([]int, 200)}, "", policy.AllInputs, key)
	g, resample, p := newGrid(200, 0.8), newResample(inputs, nil), newOrdering(r)
	s := newSamples(Options{Bootstrap: 1, Bands: true})
	var counted [coverages + 1]counts
	allocations := testing.AllocsPerRun(10, func() {
		resample.draw(1, 2)
		g.walk(p.order, p.ties, resample.times, &counted)
		s.set(0, g, &counted, 0)
	})
	if allocations != 0 {
		t.Errorf("%v allocations a resample", allocations)
	}
}
