package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// misses prints, for every recording of a folder that has critical classes, the critical miss rate
// on the other half of what calibration chose on one half: beside the naive pick, which is the score
// of the ten with the fewest misses on the first half, and beside the best score with hindsight.
func misses(folder, only string, n int, seed uint64, options calibrate.Options) error {
	fmt.Printf("Critical miss rate on the other half, mean of %d halves; the standard error of a difference allows for halves that overlap "+
		"(Nadeau and Bengio 2003).\n\n", n)
	fmt.Println("| recording | scope | coverage | no deferral | naive pick | best score with hindsight | calibrated | above the best (SE) | below the naive (SE) | coverage had | chosen |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	var all []cell
	err := each(folder, only, func(name string, b *bench) error {
		for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
			for _, coverage := range []float64{0.8, 0.95} {
				options.Base, options.Scope, options.Objective = b.base, scope, calibrate.Objective{Coverage: coverage}
				c, err := b.cell(n, seed, options)
				if err != nil {
					return err
				}
				fmt.Printf("| %s | %s | %v | %.3f | %.3f | %.3f %s | %.3f | %+.4f (%.4f) | %+.4f (%.4f) | %.3f | %s |\n", name, scope,
					coverage, c.none, c.naive, c.best, c.bestName, c.own, c.aboveBest.mean, c.aboveBest.se, -c.aboveNaive.mean, c.aboveNaive.se,
					c.had, c.chosen)
				all = append(all, *c)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	mean := func(of func(cell) float64) float64 {
		sum := 0.0
		for _, c := range all {
			sum += of(c) / float64(len(all))
		}
		return sum
	}
	count := func(is func(cell) bool) (n int) {
		for _, c := range all {
			n += index(is(c))
		}
		return n
	}
	fmt.Printf("\nOn the mean of %d cells: calibrated %.4f, naive pick %.4f, best score with hindsight %.4f. Cells above the best by more than two "+
		"standard errors: %d, by more than one: %d.\n", len(all), mean(func(c cell) float64 { return c.own }),
		mean(func(c cell) float64 { return c.naive }), mean(func(c cell) float64 { return c.best }),
		count(func(c cell) bool { return c.aboveBest.mean > 2*c.aboveBest.se }),
		count(func(c cell) bool { return c.aboveBest.mean > c.aboveBest.se }))
	return nil
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// about describes a recording.
type about struct{ Critical []int }

func readAbout(name string) (about, error) {
	var a about
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// critical returns the numbers of the critical classes as a flag has them.
func (a about) critical() string {
	var numbers []string
	for _, k := range a.Critical {
		numbers = append(numbers, strconv.Itoa(k))
	}
	return strings.Join(numbers, ",")
}

// cell holds the figures of one recording, scope and coverage.
type cell struct {
	none, naive, best, own, had float64
	bestName, chosen            string
	aboveBest, aboveNaive       difference
}

// difference holds a mean difference over halves with its standard error.
type difference struct{ mean, se float64 }

// cell calibrates on n random halves, and measures on the others.
func (b *bench) cell(n int, seed uint64, o calibrate.Options) (*cell, error) {
	scores := make([][]float64, n)
	own, naive, had, none := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	rules := make([]string, n)
	err := inParallel(n, func(h int) error {
		order := rand.New(rand.NewPCG(seed, uint64(h))).Perm(b.table.Inputs)
		first, second := order[:b.table.Inputs/2], order[b.table.Inputs/2:]
		t, labels := b.take(first)
		o := o
		o.Seed = uint64(h)
		r, err := calibrate.Choose(context.Background(), t, labels, o)
		if err != nil {
			return err
		}
		critical := b.criticalIn(second)
		got, err := b.apply(r.Policy, second)
		if err != nil {
			return err
		}
		own[h], had[h], rules[h] = float64(got.Missed)/critical, got.Coverage(), ruleOf(r.Chosen)
		none[h] = b.missedIn(second) / critical
		fewest := math.Inf(1)
		for s := range decomp.Score(decomp.NumScores) {
			if b.table.Scores[s] == nil {
				scores[h] = append(scores[h], math.Inf(1))
				continue
			}
			missed := float64(b.single(s, o.Scope, o.Objective.Coverage, first, second).Missed) / critical
			scores[h] = append(scores[h], missed)
			if s >= decomp.PaperScores {
				continue
			}
			if on := float64(b.single(s, o.Scope, o.Objective.Coverage, first, first).Missed); on < fewest {
				fewest, naive[h] = on, missed
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := &cell{none: mean(none), naive: mean(naive), own: mean(own), had: mean(had), best: math.Inf(1)}
	var best []float64
	for s := range decomp.NumScores {
		shares := make([]float64, n)
		for h := range n {
			shares[h] = scores[h][s]
		}
		if m := mean(shares); m < c.best {
			best, c.best, c.bestName = shares, m, decomp.Score(s).String()
		}
	}
	c.aboveBest, c.aboveNaive = differ(own, best), differ(own, naive)
	c.chosen = commonest(rules)
	return c, nil
}

// differ returns the mean of a-b over n random halves, with its standard error. Halves share inputs,
// so the variance of the mean is taken to be 1/n + 1 times the variance of a single difference, and
// not 1/n times (Nadeau and Bengio 2003, for as many test inputs as training inputs).
func differ(a, b []float64) difference {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	m, square := mean(d), 0.0
	for _, v := range d {
		square += (v - m) * (v - m)
	}
	n := float64(len(d))
	return difference{m, math.Sqrt((1/n + 1) * square / (n - 1))}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// commonest returns the most frequent rules with their numbers.
func commonest(rules []string) string {
	times := map[string]int{}
	for _, r := range rules {
		times[r]++
	}
	var names []string
	for r := range times {
		names = append(names, r)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(times[b]-times[a], strings.Compare(a, b)) })
	const shown = 3
	var list []string
	for _, r := range names[:min(shown, len(names))] {
		list = append(list, fmt.Sprintf("%d x %s", times[r], r))
	}
	return strings.Join(list, ", ")
}

// ruleOf names what was chosen.
func ruleOf(c *calibrate.Chosen) string {
	if c.Fallback != nil {
		return fmt.Sprintf("%s(%s,%s)", c.Gate, c.Primary.Score, c.Fallback.Score)
	}
	if c.Guard != nil {
		return c.Primary.Score + " with guard"
	}
	return c.Primary.Score
}

// criticalIn counts the critical ones of some inputs, missedIn those of them that are called safe.
func (b *bench) criticalIn(inputs []int) (n float64) {
	for _, i := range inputs {
		n += float64(index(slices.Contains(b.table.Spec.Critical, b.recording.Labels[i])))
	}
	return n
}

func (b *bench) missedIn(inputs []int) (n float64) {
	for _, i := range inputs {
		called := slices.Contains(b.table.Spec.Critical, b.table.Predicted[i])
		n += float64(index(slices.Contains(b.table.Spec.Critical, b.recording.Labels[i]) && !called))
	}
	return n
}
