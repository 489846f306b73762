package learn_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/calibrate/internal/learn"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// ctg returns the MC-dropout recording, and a policy that retains about 80% by c_crit_max.
func ctg(t testing.TB) (learn.Recording, *policy.Policy) {
	t.Helper()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	return learn.Recording{Passes: r.Passes.S, Inputs: r.Passes.N, Values: r.Passes.Float32, Labels: r.Labels},
		&policy.Policy{
			Name: "ctg", Classes: r.Classes, Critical: r.Critical, Safe: r.Safe, Kind: policy.Probabilities, FewestPasses: 2,
			SumTolerance: 1e-3, Variance: policy.Sample, ReliabilityThreshold: 0.3, Gate: policy.Never, Scope: policy.AllInputs,
			Pairs: policy.SafeCriticalPairs, Primary: policy.Rule{Score: policy.CCritMax, Threshold: 0.06, HasThreshold: true},
			Fallback: policy.Rule{Score: policy.CBEC}, Degenerate: policy.HandleDefer, Saturated: policy.HandleDefer,
		}
}

func decide(t testing.TB, p *policy.Policy, r learn.Recording) *learn.Decisions {
	t.Helper()
	d, err := learn.Decide(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func learned(t testing.TB, d *learn.Decisions, inputs []int, orders int, seed uint64) []*earlystop.Rule {
	t.Helper()
	sequence, err := learn.Learn(t.Context(), d, inputs, orders, seed)
	if err != nil {
		t.Fatal(err)
	}
	return sequence
}

// halves divides the inputs at random.
func halves(n int) (a, b []int) {
	perm := rand.New(rand.NewPCG(1, 2)).Perm(n)
	return perm[:n/2], perm[n/2:]
}

// request returns a request for a certificate without a risk.
func request(epsilon float64) *learn.Request {
	return &learn.Request{Epsilon: epsilon, Released: 0.05, Confidence: 0.9, Seed: 1}
}

// TestCTG certifies a rule on the half that it was not learned from, and checks that the certificate
// describes what the rule does.
func TestCTG(t *testing.T) {
	r, p := ctg(t)
	d := decide(t, p, r)
	learning, rest := halves(r.Inputs)
	const share = 0.01
	sequence := learned(t, d, learning, 6, 1)
	for _, rule := range sequence {
		if err := rule.Form.Check(); err != nil {
			t.Fatal(err)
		}
		if rule.Patience <= 0 {
			t.Fatalf("patience %v, expected some", rule.Patience)
		}
	}
	rule, c, err := request(share).Certify(t.Context(), d, sequence, rest)
	if err != nil {
		t.Fatal(err)
	}
	differs, released, critical := c.Tally(learn.Disagreements), c.Tally(learn.Released), c.Tally(learn.CriticalReleased)
	if !slices.Contains(sequence, rule) || differs.Upper(0.9) > share || differs.Cases != len(rest) || c.MeanPasses() > 30/1.3 {
		t.Errorf("disagreements %+v, mean passes %v", differs, c.MeanPasses())
	}
	if released.Misses > differs.Misses || critical.Misses > released.Misses {
		t.Errorf("counts do not add up: %+v, %+v, %+v", differs, released, critical)
	}
	differ, err := learn.Noise(t.Context(), d, rest, 1)
	noise := 0.0
	for _, d := range differ {
		if d {
			noise += 1 / float64(len(rest))
		}
	}
	if err != nil || noise < 0.05 || noise > 0.2 {
		t.Errorf("halves differ on %v of the inputs (error %v), expected 5 to 20%%", noise, err)
	}
}

// TestPCritical checks that inputs stop early under a policy on p_critical, which hardly needs its
// passes: the rule is certified, and saves most of them.
func TestPCritical(t *testing.T) {
	r, p := ctg(t)
	p.Scope, p.Primary = policy.PredictedSafe, policy.Rule{Score: policy.PCritical, Threshold: 0.15, HasThreshold: true}
	d := decide(t, p, r)
	learning, rest := halves(r.Inputs)
	sequence := learned(t, d, learning, 6, 1)
	_, c, err := request(0.02).Certify(t.Context(), d, sequence, rest)
	if err != nil {
		t.Fatal(err)
	}
	if differs := c.Tally(learn.Disagreements); differs.Upper(0.9) > 0.02 || c.MeanPasses() > 15 {
		t.Errorf("%+v, mean passes %v, expected twice fewer passes", differs, c.MeanPasses())
	}
}

// TestOrdered checks that ensemble members keep their order. Where only the last member disagrees,
// every early stop risks a disagreement, although random orders could avoid it.
func TestOrdered(t *testing.T) {
	_, p := ctg(t)
	const s, n = 5, 600
	values := make([]float32, s*n*3)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		for pass := range s {
			safe := 0.99 + 0.001*rng.Float32()
			if pass == s-1 && i%2 == 0 {
				safe = 0.1 // the last member makes half the inputs deferred
			}
			copy(values[(pass*n+i)*3:], []float32{safe, (1 - safe) / 2, (1 - safe) / 2})
		}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	used := map[bool]float64{}
	for _, ordered := range []bool{false, true} {
		d := decide(t, p, learn.Recording{Passes: s, Inputs: n, Values: values, Ordered: ordered})
		sequence := learned(t, d, all, 4, 0)
		got, err := d.Count(t.Context(), sequence[6], all) // beyond those with a margin, which use nearly all anyway
		if err != nil {
			t.Fatal(err)
		}
		used[ordered] = got.MeanPasses()
	}
	if used[true] < s-0.1 || used[false] > s-0.5 {
		t.Errorf("passes used %v, expected nearly all where they are ordered alone", used)
	}
}

// TestDegenerate checks that inputs whose passes are identical are never retained early.
func TestDegenerate(t *testing.T) {
	r, p := ctg(t)
	p.Degenerate = policy.HandleRetain // so that nothing but the rule holds them back
	learning, rest := halves(r.Inputs)
	sequence := learned(t, decide(t, p, r), learning[:400], 2, 0)
	off := r
	off.Values = slices.Clone(r.Values)
	one := len(r.Values) / r.Passes
	for s := 1; s < r.Passes; s++ {
		copy(off.Values[s*one:], off.Values[:one]) // dropout is off
	}
	d := decide(t, p, off)
	for _, rule := range sequence {
		if got, err := d.Count(t.Context(), rule, rest[:500]); err != nil || got.Settled() != 0 {
			t.Fatalf("%d inputs of identical passes stopped early (%v)", got.Settled(), err)
		}
	}
}

func TestLearnRefuses(t *testing.T) {
	r, p := ctg(t)
	_, err := learn.Learn(t.Context(), decide(t, p, r), []int{0}, learn.Orders, 0)
	if !errors.As(err, new(*learn.RefusedError)) || !strings.Contains(err.Error(), "expected at least 10 of each") {
		t.Errorf("%v: expected a *RefusedError", err)
	}
}

// TestNested checks that boundaries never fall from one rule of the path to the next.
func TestNested(t *testing.T) {
	r, p := ctg(t)
	learning, _ := halves(r.Inputs)
	sequence := learned(t, decide(t, p, r), learning[:300], 3, 0)
	for i, rule := range sequence[1:] {
		for at, bolder := range rule.Steps {
			if step := sequence[i].Steps[at]; step.Retain.AtMost > bolder.Retain.AtMost || step.Defer.AtMost > bolder.Defer.AtMost {
				t.Fatalf("after %d passes a boundary of rule %d is above that of the next", rule.Fewest+at, i)
			}
		}
	}
}

// TestCertifyRefuses checks that a rule that stops every input at once is not certified.
func TestCertifyRefuses(t *testing.T) {
	r, p := ctg(t)
	rule := &earlystop.Rule{Passes: 30, Fewest: 2, Steps: make([]earlystop.Step, 28)}
	for i := range rule.Steps {
		rule.Steps[i].Retain.AtMost, rule.Steps[i].Defer.AtMost = earlystop.Never, earlystop.Never
	}
	_, rest := halves(r.Inputs)
	_, _, err := request(0.01).Certify(t.Context(), decide(t, p, r), []*earlystop.Rule{rule}, rest)
	var refused *learn.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "under the most cautious rule") {
		t.Errorf("%v: expected a *RefusedError", err)
	}
}

func TestFewestInputs(t *testing.T) {
	for _, c := range []struct {
		epsilon, confidence float64
		want                int
	}{{0.005, 0.95, 599}, {0.01, 0.9, 230}, {0.01, 0.95, 299}, {0.5, 0.5, 1},
		{1e-9, 0.9, math.MaxInt32}, {1e-300, 0.9, math.MaxInt32}, {5e-324, math.Nextafter(1, 0), math.MaxInt32}, {0, 0.9, math.MaxInt32},
		{0, 0, math.MaxInt32}, {1, 1, math.MaxInt32}, {math.Nextafter(1, 0), 5e-324, 1}} {
		if got := learn.FewestInputs(c.epsilon, c.confidence); got != c.want {
			t.Errorf("%v at %v: %d, expected %d", c.epsilon, c.confidence, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		epsilon, confidence := rapid.Float64Range(1e-4, 0.5).Draw(t, "epsilon"), rapid.Float64Range(0.5, 0.999).Draw(t, "confidence")
		n := learn.FewestInputs(epsilon, confidence)
		if up := binomial.Upper(0, n, confidence); up > epsilon*(1+1e-9) {
			t.Fatalf("no disagreement among %d: bound %v", n, up)
		}
	})
}

// countdown is a context that ends after some looks at it.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelled checks that everything that takes long looks at its context at least once for each
// input, and ends as soon as the context has.
func TestCancelled(t *testing.T) {
	r, p := ctg(t)
	d := decide(t, p, r)
	learning, rest := halves(r.Inputs)
	learning = learning[:200]
	sequence := learned(t, d, learning, 2, 0)
	for name, run := range map[string]func(ctx context.Context) error{
		"Decide": func(ctx context.Context) error { _, err := learn.Decide(ctx, p, r); return err },
		"Learn": func(ctx context.Context) error {
			_, err := learn.Learn(ctx, d, learning, 2, 0)
			return err
		},
		"Certify": func(ctx context.Context) error {
			_, _, err := request(0.05).Certify(ctx, d, sequence, rest)
			return err
		},
		"Noise": func(ctx context.Context) error { _, err := learn.Noise(ctx, d, rest, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			all := &countdown{t.Context(), math.MaxInt}
			if err := run(all); err != nil {
				t.Fatal(err)
			}
			looks := math.MaxInt - all.left
			if looks < len(learning) {
				t.Errorf("%d looks at the context, expected one for each input", looks)
			}
			for _, after := range []int{0, looks / 2, looks - 1} {
				c := &countdown{t.Context(), after}
				if err := run(c); !errors.Is(err, context.Canceled) || c.left != -1 {
					t.Errorf("cancelled after %d looks of %d: error %v, %d more looks", after, looks, err, -1-c.left)
				}
			}
		})
	}
}
