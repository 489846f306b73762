// Command risk measures the risk, the probability that an input called safe is truly critical, on
// the other half of recordings:
//
//	go run ./bench/risk internal/recordings/ctg-*.passes.npy
//
// Beside NAME.passes.npy it expects NAME.labels.npy, and NAME.json with the critical and the safe
// set; -critical 2,8,9 takes these classes as critical and all others as safe, as for recordings without
// a critical set:
//
//	go run ./bench/risk -critical 2,4,8,9 internal/recordings/digits-noise-50.passes.npy
//
// Each of many random halves fits two models, one of the form that calibration chooses and one
// of an intercept and p_critical alone, and the other half measures both: Brier score, log loss,
// the expected calibration error (ECE) over ten bins of equally many inputs, and the critical
// inputs missed in scope predicted-safe at a coverage, as a share of all critical inputs, if the
// inputs with the highest values are deferred. For comparison there are p_critical, the best of the
// paper's ten scores with hindsight, and the naive pick: the one of the ten with the fewest misses
// on the first half.
//
// Standard errors of means over halves are corrected for what the halves share (Nadeau and Bengio,
// 2003).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

const suffix = ".passes.npy"

// critical holds the classes of -critical; nil for those of each recording.
var critical []int

var coverages = [2]float64{0.8, 0.95}

func main() {
	halves := flag.Int("halves", 40, "random halves")
	flag.Func("critical", "numbers of the critical classes, in place of those of NAME.json", func(text string) error {
		for _, number := range strings.Split(text, ",") {
			class, err := strconv.Atoi(number)
			if err != nil || class < 0 {
				return fmt.Errorf("class %q: expected a number from 0", number)
			}
			critical = append(critical, class)
		}
		return nil
	})
	flag.Parse()
	var means [len(coverages)][rankings]float64
	measured := 0.0
	for _, file := range flag.Args() {
		m, err := measure(file, *halves)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if m == nil {
			continue
		}
		measured++
		for c := range means {
			for r := range rankings {
				means[c][r] += m[c][r]
			}
		}
	}
	for c, coverage := range coverages {
		fmt.Printf("mean of %v recordings, coverage %v:", measured, coverage)
		for r, name := range rankingNames {
			fmt.Printf("  %s %.4f", name, means[c][r]/measured)
		}
		fmt.Println()
	}
}

// The rankings that are compared.
const (
	bestOfTen = iota
	naive
	pCritical
	byRisk
	rankings
)

var rankingNames = [rankings]string{"best of ten", "naive pick", "p_critical", "risk"}

// half has what one half measures of models fitted on the other.
type half struct {
	numbers       int
	chosen, two   figures
	ten           [len(coverages)][decomp.PaperScores]float64 // critical miss rates
	naive, own, p [len(coverages)]float64
}

type figures struct{ brier, logLoss, ece, simulated float64 }

// measure prints what a recording shows, and returns the mean critical miss rates; nil where no half
// has enough critical inputs called safe.
func measure(file string, n int) (*[len(coverages)][rankings]float64, error) {
	t, labels, err := load(file)
	if err != nil {
		return nil, err
	}
	all := make([]*half, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for h := range n {
		group.Go(func() (err error) {
			all[h], err = measureHalf(t, labels, uint64(h))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	found := slices.DeleteFunc(all, func(h *half) bool { return h == nil })
	fmt.Printf("%s: %d inputs, %d classes, %d critical inputs, %d called safe; a model in %d of %d halves\n",
		strings.TrimSuffix(filepath.Base(file), suffix), t.Inputs, t.K, criticalOf(t, labels), missedOf(t, labels), len(found), n)
	if len(found) == 0 {
		return nil, nil
	}
	of := func(f func(h *half) float64) (mean, standardError float64) { return overHalves(found, f) }
	larger, _ := of(func(h *half) float64 {
		if h.numbers > 2 {
			return 1
		}
		return 0
	})
	fmt.Printf("    more than two numbers in %.0f%% of the halves\n", 100*larger)
	for _, f := range []struct {
		name string
		of   func(f figures) float64
	}{{"Brier score", func(f figures) float64 { return f.brier }}, {"log loss", func(f figures) float64 { return f.logLoss }}} {
		two, _ := of(func(h *half) float64 { return f.of(h.two) })
		difference, se := of(func(h *half) float64 { return f.of(h.chosen) - f.of(h.two) })
		fmt.Printf("    %-12s two numbers %.5f, chosen form %+.5f ± %.5f\n", f.name, two, difference, se)
	}
	ece, _ := of(func(h *half) float64 { return h.chosen.ece })
	simulated, _ := of(func(h *half) float64 { return h.chosen.simulated })
	fmt.Printf("    ECE %.4f, by chance %.4f, limit 1.25 of that + 0.002 = %.4f\n", ece, simulated, 1.25*simulated+0.002)
	var means [len(coverages)][rankings]float64
	for c, coverage := range coverages {
		best := 0
		ten := func(s int) func(h *half) float64 { return func(h *half) float64 { return h.ten[c][s] } }
		for s := range decomp.PaperScores {
			a, _ := of(ten(s))
			if b, _ := of(ten(best)); a < b {
				best = s
			}
		}
		columns := [rankings]func(h *half) float64{
			ten(best), func(h *half) float64 { return h.naive[c] },
			func(h *half) float64 { return h.p[c] }, func(h *half) float64 { return h.own[c] },
		}
		fmt.Printf("    coverage %-5v critical miss rate:", coverage)
		for r, column := range columns {
			means[c][r], _ = of(column)
			fmt.Printf("  %s %.4f", rankingNames[r], means[c][r])
			if r == bestOfTen {
				fmt.Printf(" (%s)", decomp.Score(best))
			}
		}
		toBest, seBest := of(func(h *half) float64 { return h.own[c] - h.ten[c][best] })
		toNaive, seNaive := of(func(h *half) float64 { return h.own[c] - h.naive[c] })
		fmt.Printf("\n        risk against the best %+.4f ± %.4f, the naive pick %+.4f ± %.4f\n", toBest, seBest, toNaive, seNaive)
	}
	return &means, nil
}

// overHalves returns the mean of a figure over halves, and its standard error: the variance of one
// half times 1/J + 1, as the test half is as large as the other.
func overHalves(all []*half, f func(h *half) float64) (mean, standardError float64) {
	j := float64(len(all))
	for _, h := range all {
		mean += f(h) / j
	}
	for _, h := range all {
		standardError += (f(h) - mean) * (f(h) - mean) / max(j-1, 1)
	}
	return mean, math.Sqrt(standardError * (1/j + 1))
}

// measureHalf fits on one random half, and measures on the other.
func measureHalf(t *eval.Table, labels []int, seed uint64) (*half, error) {
	order := rand.New(rand.NewPCG(1, seed)).Perm(t.Inputs)
	first, firstLabels := take(t, labels, order[:t.Inputs/2])
	second, secondLabels := take(t, labels, order[t.Inputs/2:])
	chosen, err := calibrate.FitRisk(first, firstLabels, calibrate.RiskOptions{Seed: seed})
	if err != nil || chosen.Risk == nil {
		return nil, err
	}
	two, err := calibrate.FitRisk(first, firstLabels, calibrate.RiskOptions{Seed: seed, MostNumbers: 2})
	if err != nil {
		return nil, err
	}
	h := &half{numbers: chosen.Numbers}
	h.chosen, h.two = worth(second, secondLabels, chosen.Risk, seed), worth(second, secondLabels, two.Risk, seed)
	for c, coverage := range coverages {
		rate := func(values []float64) float64 {
			return missedAt(second, secondLabels, values, coverage) / float64(criticalOf(second, secondLabels))
		}
		fewest := math.Inf(1)
		for s := range decomp.PaperScores {
			h.ten[c][s] = rate(second.Scores[s])
			if m := missedAt(first, firstLabels, first.Scores[s], coverage); m < fewest {
				fewest, h.naive[c] = m, h.ten[c][s]
			}
		}
		h.p[c], h.own[c] = rate(second.Scores[decomp.PCritical]), rate(calibrate.Risks(second, &chosen.Risk.Model))
	}
	return h, nil
}

// worth measures the probabilities of inputs called safe.
func worth(t *eval.Table, labels []int, r *policy.Risk, seed uint64) figures {
	type called struct {
		p        float64
		critical bool
	}
	var rows []called
	for i, p := range calibrate.Risks(t, &r.Model) {
		if !math.IsNaN(p) {
			rows = append(rows, called{p, slices.Contains(t.Spec.Critical, labels[i])})
		}
	}
	slices.SortStableFunc(rows, func(a, b called) int { return cmp.Compare(a.p, b.p) })
	n := float64(len(rows))
	var f figures
	for _, row := range rows {
		if row.critical {
			f.brier += (1 - row.p) * (1 - row.p) / n
			f.logLoss -= math.Log(row.p) / n
		} else {
			f.brier += row.p * row.p / n
			f.logLoss -= math.Log1p(-row.p) / n
		}
	}
	ece := func(critical func(row called) bool) float64 {
		const bins = 10
		sum := 0.0
		for b := range bins {
			d := 0.0
			for _, row := range rows[b*len(rows)/bins : (b+1)*len(rows)/bins] {
				d -= row.p
				if critical(row) {
					d++
				}
			}
			sum += math.Abs(d) / n
		}
		return sum
	}
	f.ece = ece(func(row called) bool { return row.critical })
	const draws = 100
	rng := rand.New(rand.NewPCG(2, seed))
	for range draws {
		f.simulated += ece(func(row called) bool { return rng.Float64() < row.p }) / draws
	}
	return f
}

// missedAt returns how many critical inputs are missed if inputs called safe with the highest values
// are deferred until the coverage is reached. Equal values are deferred in a random order, of which
// it takes the mean.
func missedAt(t *eval.Table, labels []int, values []float64, coverage float64) float64 {
	var order []int
	for i, predicted := range t.Predicted {
		if !slices.Contains(t.Spec.Critical, predicted) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	left, missed := math.Round((1-coverage)*float64(t.Inputs)), 0.0
	for from := 0; from < len(order); {
		to, critical := from, 0.0
		for ; to < len(order) && values[order[to]] == values[order[from]]; to++ {
			if slices.Contains(t.Spec.Critical, labels[order[to]]) {
				critical++
			}
		}
		tied := float64(to - from)
		deferred := min(left, tied)
		missed += critical * (1 - deferred/tied)
		left -= deferred
		from = to
	}
	return missed
}

func criticalOf(t *eval.Table, labels []int) int {
	n := 0
	for _, label := range labels {
		if slices.Contains(t.Spec.Critical, label) {
			n++
		}
	}
	return n
}

func missedOf(t *eval.Table, labels []int) int {
	n := 0
	for i, label := range labels {
		if slices.Contains(t.Spec.Critical, label) && !slices.Contains(t.Spec.Critical, t.Predicted[i]) {
			n++
		}
	}
	return n
}

func take(t *eval.Table, labels, inputs []int) (*eval.Table, []int) {
	some := make([]int, len(inputs))
	for j, i := range inputs {
		some[j] = labels[i]
	}
	return t.Select(inputs), some
}

// load reads a recording and decomposes it.
func load(file string) (*eval.Table, []int, error) {
	base := strings.TrimSuffix(file, suffix)
	passes, err := record.ReadPasses(file, record.Options{})
	if err != nil {
		return nil, nil, err
	}
	labels, err := record.ReadLabels(base + ".labels.npy")
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return nil, nil, err
	}
	var about struct{ Critical, Safe []int }
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, nil, fmt.Errorf("%s.json: %w", base, err)
	}
	if critical != nil {
		about.Critical, about.Safe = critical, nil
		for class := range passes.K {
			if !slices.Contains(critical, class) {
				about.Safe = append(about.Safe, class)
			}
		}
	}
	if len(about.Critical) == 0 {
		return nil, nil, fmt.Errorf("%s.json: no class is critical, expected at least one", base)
	}
	r := eval.Recording{Name: file, Classes: passes.K, Labels: labels, Passes: decomp.Tensor{
		Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64,
	}}
	if err := r.CheckLabels(); err != nil {
		return nil, nil, err
	}
	t, err := eval.NewTable(context.Background(), r, decomp.Spec{Classes: passes.K, Critical: about.Critical, Safe: about.Safe}, nil)
	return t, labels, err
}
