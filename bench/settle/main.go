// Command settle prints what settling saves on held-out halves of the project's
// recordings: as means over splits, with intervals of the mean.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle/learn"
)

var (
	folder   = flag.String("recordings", "internal/recordings", "folder of the recordings")
	splits   = flag.Int("splits", 20, "random halves")
	orders   = flag.Int("orders", 0, "orders of the passes to learn from; 0 for the default")
	fewest   = flag.Int("fewest", 0, "fewest passes to settle after; 0 for what the policy accepts")
	coverage = flag.Float64("coverage", 0.8, "share of the learning half retained")
	certify  = flag.Float64("certify", 0.01, "certify so many disagreements at most, at 90%; 0 for no certificate")
	names    = flag.String("only", "", "only tasks whose name has this")
	labels   = flag.Bool("labels", false, "print what becomes of critical inputs too")
)

type task struct {
	name, recording string
	gate            policy.Gate
	scope           policy.Scope
	critical        []int
}

func tasks() []task {
	ctg := []int{1, 2}
	return []task{
		{"lowrank c_crit_max", "ctg-lowrank", policy.Never, policy.AllInputs, ctg},
		{"lowrank cbec", "ctg-lowrank", policy.Always, policy.AllInputs, ctg},
		{"mcdropout c_crit_max", "ctg-mcdropout", policy.Never, policy.AllInputs, ctg},
		{"mcdropout cbec", "ctg-mcdropout", policy.Always, policy.AllInputs, ctg},
		{"lowrank any-critical", "ctg-lowrank", policy.AnyCritical, policy.AllInputs, ctg},
		{"mcdropout any-critical", "ctg-mcdropout", policy.AnyCritical, policy.AllInputs, ctg},
		{"lowrank c_crit_max safe", "ctg-lowrank", policy.Never, policy.PredictedSafe, ctg},
		{"mcdropout cbec safe", "ctg-mcdropout", policy.Always, policy.PredictedSafe, ctg},
		{"digits-id c_crit_max", "digits-id", policy.Never, policy.AllInputs, []int{3, 5}},
		{"digits-id cbec", "digits-id", policy.Always, policy.AllInputs, []int{3, 5}},
		{"digits-noise-30 c_crit_max", "digits-noise-30", policy.Never, policy.AllInputs, []int{3, 8}},
		{"digits-noise-30 cbec", "digits-noise-30", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-noise-00 cbec", "digits-noise-00", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-noise-50 cbec", "digits-noise-50", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-ood cbec", "digits-ood", policy.Always, policy.AllInputs, []int{3, 5}},
		{"ensemble c_crit_max", "ctg-ensemble", policy.Never, policy.AllInputs, ctg},
	}
}

func main() {
	flag.Parse()
	for _, t := range tasks() {
		if *names != "" && !slices.ContainsFunc(strings.Split(*names, ","), func(s string) bool { return strings.Contains(t.name, s) }) {
			continue
		}
		if err := run(t); err != nil {
			fmt.Fprintln(os.Stderr, t.name+":", err)
			os.Exit(1)
		}
	}
}

func run(t task) error {
	r, k, err := read(t.recording)
	if err != nil {
		return err
	}
	began := time.Now()
	columns := map[string][]float64{}
	add := func(name string, v float64) { columns[name] = append(columns[name], v) }
	refused := 0
	for split := range *splits {
		perm := rand.New(rand.NewPCG(uint64(split), 7)).Perm(r.Inputs)
		learning, rest := perm[:r.Inputs/2], perm[r.Inputs/2:]
		p, err := thresholds(t, r, k, learning)
		if err != nil {
			return err
		}
		d, err := learn.Decide(p, *r)
		if err != nil {
			return err
		}
		for kind, name := range []string{"learned", "score"} {
			path, err := learn.Learn(d, learning, learn.Options{Orders: *orders, Fewest: *fewest, Kind: learn.Kind(kind), Seed: uint64(split)})
			if err != nil {
				return err
			}
			points := learn.Frontier(d, path, name, rest, 8, uint64(split))
			for _, e := range []float64{0.01, 0.005} {
				add(fmt.Sprintf("%s at %v%%", name, e*100), float64(r.Passes)/learn.PassesAt(points, e))
			}
			if kind == 0 && *certify > 0 {
				_, c, err := (&learn.Request{Epsilon: *certify, Confidence: 0.9, Seed: uint64(split)}).Certify(d, path, rest)
				var no *learn.RefusedError
				switch {
				case errors.As(err, &no):
					refused++
					if split == 0 {
						fmt.Println("  refused:", no)
					}
				case err != nil:
					return err
				default:
					add("certified", c.Counts.Saving())
					add("disagree", 100*c.Counts.DisagreementShare())
					add("released", float64(c.Counts.Released))
					if *labels {
						add("critical fnr", c.Counts.CriticalFNR())
						add("of all passes", float64(c.Counts.FullCriticalMissed)/max(1, float64(c.Counts.FullCriticalRetained)))
					}
				}
			}
		}
		naive := learn.FewerPasses(d, rest, 4, uint64(split))
		add("naive at 1%", float64(r.Passes)/learn.PassesAt(naive, 0.01))
		add("halves differ %", 100*float64(learn.Noise(d, rest, uint64(split)))/float64(len(rest)))
	}
	fmt.Printf("%-27s", t.name)
	for _, name := range []string{"learned at 1%", "learned at 0.5%", "score at 1%", "score at 0.5%", "naive at 1%", "certified", "disagree", "released", "critical fnr", "of all passes", "halves differ %"} {
		if v := columns[name]; len(v) > 0 {
			fmt.Printf(" | %s %.3g±%.1g", name, mean(v), 1.96*spread(v)/math.Sqrt(float64(len(v))))
		}
	}
	fmt.Printf(" | refused %d of %d | %.1fs\n", refused, *splits, time.Since(began).Seconds())
	return nil
}

func read(name string) (*learn.Recording, int, error) {
	p, err := record.ReadPasses(filepath.Join(*folder, name+".passes.npy"), record.Options{})
	if err != nil {
		return nil, 0, err
	}
	r := &learn.Recording{Passes: p.S, Inputs: p.N, Values: p.Float32, Ordered: strings.Contains(name, "ensemble")}
	labels := filepath.Join(*folder, name+".labels.npy")
	if _, err := os.Stat(labels); errors.Is(err, os.ErrNotExist) {
		return r, p.K, nil
	}
	a, err := record.ReadFile(labels)
	if err != nil {
		return nil, 0, err
	}
	for _, l := range a.Int64 {
		r.Labels = append(r.Labels, int(l))
	}
	return r, p.K, nil
}

// thresholds retain the share of the learning half, by each score.
func thresholds(t task, r *learn.Recording, k int, learning []int) (*policy.Policy, error) {
	p := &policy.Policy{Name: "bench", Kind: policy.Probabilities, FewestPasses: 2, SumTolerance: 1e-3, Variance: policy.Sample,
		ReliabilityThreshold: 0.3, Gate: t.gate, Scope: t.scope, Pairs: policy.SafeCriticalPairs,
		Primary: policy.Rule{Score: policy.CCritMax}, Fallback: policy.Rule{Score: policy.CBEC},
		Degenerate: policy.HandleDefer, Saturated: policy.HandleDefer, Critical: t.critical, TopClasses: 2}
	if t.gate == policy.AnyCritical {
		p.FewestPasses = 4
	}
	for j := range k {
		p.Classes = append(p.Classes, fmt.Sprint(j))
		if !slices.Contains(t.critical, j) {
			p.Safe = append(p.Safe, j)
		}
	}
	m, err := engine.NewLean(p)
	if err != nil {
		return nil, err
	}
	b, o := m.NewBatch(), m.NewOutcome()
	if err := b.Reset(decomp.Tensor{Passes: r.Passes, Inputs: r.Inputs, Float32: r.Values}); err != nil {
		return nil, err
	}
	var primary, fallback []float64
	for _, i := range learning {
		if err := b.Outcome(i, o); err != nil {
			return nil, err
		}
		if t.scope == policy.PredictedSafe && slices.Contains(t.critical, o.Predicted) {
			continue
		}
		primary, fallback = append(primary, o.Scores[decomp.CCritMax]), append(fallback, o.Scores[decomp.CBEC])
	}
	deferred := int((1 - *coverage) * float64(len(learning)))
	for _, x := range []struct {
		scores []float64
		rule   *policy.Rule
	}{{primary, &p.Primary}, {fallback, &p.Fallback}} {
		slices.Sort(x.scores)
		at := len(x.scores) - deferred
		x.rule.Threshold, x.rule.HasThreshold = (x.scores[at-1]+x.scores[at])/2, true
	}
	return p, nil
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func spread(v []float64) float64 {
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / max(1, float64(len(v)-1)))
}
