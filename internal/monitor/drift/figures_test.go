package drift_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/internal/monitor/drift"
)

var figures = flag.Bool("figures", false, "measure the figures of docs/triage.md, which takes minutes")

// TestFigures measures the figures of docs/triage.md for real models:
//
//	go test ./internal/monitor/drift -run TestFigures -v -figures
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("is run by hand, with -figures")
	}
	names := []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble", "digits-id"}

	runs := 0
	for i, name := range names {
		s := read(t, name)
		ref := s.reference()
		from := s.live(ref)
		for seed := range uint64(300) {
			if feed(drift.NewMonitor(ref), from, 1_000_000, rand.New(rand.NewPCG(1000+seed, uint64(i)))) > 0 {
				runs++
			}
		}
	}
	t.Logf("a million inputs drawn from the calibration's: an alarm in %d of 1200 runs", runs)

	runs = 0
	for i, name := range names {
		s := read(t, name)
		for seed := range uint64(1000) {
			order := rand.New(rand.NewPCG(3000+seed, uint64(i))).Perm(len(s.c))
			ref := s.take(order[:len(order)/2]).reference()
			from := s.take(order[len(order)/2:]).live(ref)
			if feedInputs(drift.NewMonitor(ref), len(from.blocks), func(n int) []drift.Block { return from.blocks[n] }) > 0 {
				runs++
			}
		}
		ref := s.reference()
		from := s.live(ref)
		at := feedInputs(drift.NewMonitor(ref), 4*len(s.c), func(n int) []drift.Block { return from.blocks[n%len(s.c)] })
		t.Logf("%s in the order of the file: first alarm after %d inputs", name, at)
	}
	t.Logf("the other half of a recording: an alarm in %d of 4000 runs", runs)

	digits := read(t, "digits-id")
	ref := digits.reference()
	id, other := digits.live(ref).blocks, read(t, "digits-ood").live(ref).blocks
	pick := func(of [][]drift.Block, rng *rand.Rand) []drift.Block { return of[rng.IntN(len(of))] }
	for _, share := range []float64{1, 0.5, 0.3, 0.2, 0.1} {
		seenAfter(t, "unknown digits", share, 1000, 8192, digits, func(rng *rand.Rand) []drift.Block {
			if rng.Float64() < share {
				return pick(other, rng)
			}
			return pick(id, rng)
		})
	}
	const class = 3
	var chosen, rest [][]drift.Block
	for i, predicted := range digits.predicted {
		if predicted == class {
			chosen = append(chosen, id[i])
		} else {
			rest = append(rest, id[i])
		}
	}
	for _, times := range []float64{2, 3} {
		seenAfter(t, "one class so many times", times, 500, 16384, digits, func(rng *rand.Rand) []drift.Block {
			if rng.Float64() < times*ref.Classes[class].Predicted {
				return pick(chosen, rng)
			}
			return pick(rest, rng)
		})
	}
	for _, pair := range [][2]string{{"digits-noise-00", "digits-noise-10"}, {"ctg-mcdropout", "ctg-lowrank"}} {
		before := read(t, pair[0])
		now := read(t, pair[1]).live(before.reference()).blocks
		seenAfter(t, pair[0]+", then "+pair[1], 1, 500, 16384, before, func(rng *rand.Rand) []drift.Block { return pick(now, rng) })
	}
}

// seenAfter returns after how many inputs of a new kind the first alarm comes, if windows were full
// of inputs of the calibration.
func seenAfter(t *testing.T, what string, shift float64, runs uint64, most int, before seen, next func(*rand.Rand) []drift.Block) {
	t.Helper()
	ref := before.reference()
	from := before.live(ref)
	var after []int
	never := 0
	for seed := range runs {
		m, rng := drift.NewMonitor(ref), rand.New(rand.NewPCG(4000, seed))
		feed(m, from, 1024+drift.BlockInputs*rng.IntN(128), rng)
		needed := feedInputs(m, most, func(int) []drift.Block { return next(rng) })
		if needed == 0 {
			never++
			needed = most
		}
		after = append(after, needed)
	}
	slices.Sort(after)
	t.Logf("%s, %v: median %d, 95%% %d, longest %d; not within %d in %d of %d runs",
		what, shift, after[runs/2], after[runs*95/100], after[runs-1], most, never, runs)
}

// take returns some of the inputs.
func (s seen) take(inputs []int) (taken seen) {
	for _, i := range inputs {
		taken.c, taken.skewness = append(taken.c, s.c[i]), append(taken.skewness, s.skewness[i])
		taken.predicted = append(taken.predicted, s.predicted[i])
	}
	return taken
}
