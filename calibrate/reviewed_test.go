package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// A site has inputs of two classes. The entropy of an input is its u; those called safe are critical
// with probability u^2/4.
type site struct{ rng *rand.Rand }

func (s site) input() (called, critical bool, u float64) {
	called, u = s.rng.Float64() < 0.3, s.rng.Float64()
	if called {
		return true, s.rng.Float64() < 0.8, u
	}
	return false, s.rng.Float64() < u*u/4, u
}

// fnr returns the critical FNR of the retained with entropies up to t: 0.7 * integral of u^2/4 over
// that and 0.3 * 0.8 t.
func (site) fnr(t float64) float64 {
	missed := 0.7 * t * t * t / 12
	return missed / (missed + 0.24*t)
}

// reviewed returns what outcomes would say of n inputs under a threshold of 0.8 with audits of a
// tenth of those called safe. The workflow looks at all that are called critical.
func (s site) reviewed(n int) Reviewed {
	r := Reviewed{Name: "outcomes of the site", LeastPropensity: 0.1}
	for range n {
		called, critical, u := s.input()
		o := Outcome{Predicted: index(called), Truth: index(critical), Deferred: u > 0.8, Propensity: 1}
		for score := range o.Scores {
			o.Scores[score] = float32(math.NaN())
		}
		o.Scores[decomp.Entropy], o.Risk = float32(u), float32(math.NaN())
		if !o.Deferred && !called {
			if o.Propensity = 0.1; s.rng.Float64() >= o.Propensity {
				continue
			}
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	return r
}

func siteOptions(t *testing.T, target, confidence float64) Options {
	t.Helper()
	p, err := policy.Build(policy.Policy{
		Name: "site", Classes: []string{"safe", "critical"}, Critical: []int{1}, Gate: policy.Never,
		Primary: policy.Rule{Score: policy.Entropy, Threshold: 0.8, HasThreshold: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Base: p, Scope: policy.AllInputs, Objective: fnrUpTo(target, confidence)}
}

// TestFromOutcomesHolds draws outcomes of a site whose risk is known, and expects few certificates to
// be violated, and a good share of the inputs to be retained.
func TestFromOutcomesHolds(t *testing.T) {
	const draws, target, confidence = 40, 0.15, 0.8
	seed := uint64(7)
	violated, certified, threshold := 0, 0, 0.
	for d := range draws {
		o := siteOptions(t, target, confidence)
		o.Seed = uint64(d)
		s := site{rand.New(rand.NewPCG(seed, uint64(d)))}
		report, err := FromOutcomes(s.reviewed(20000), o)
		if err != nil {
			t.Fatal(err)
		}
		if report.Policy == nil {
			continue
		}
		certified++
		at := report.Policy.Primary.Threshold
		threshold += at
		violated += index(s.fnr(at) > target)
		if c := report.Certificate; c.PValue > 1-confidence || c.Bounds != policy.CriticalFNR {
			t.Fatalf("draw %d: certificate %+v", d, c)
		}
	}
	// Of 40 draws with a chance of 0.2, over 16 come with one of 0.1%.
	if violated > 16 || certified < draws/2 {
		t.Errorf("%d of %d certificates are violated (seed %d), certified %d", violated, draws, seed, certified)
	}
	// fnr(0.8) is 0.134, fnr(0.86) 0.152.
	if mean := threshold / float64(certified); mean < 0.5 || mean > 0.86 {
		t.Errorf("the mean threshold is %v", mean)
	}
}

// TestFromOutcomesRefuses checks what leads to a refusal, and that its reason names it.
func TestFromOutcomesRefuses(t *testing.T) {
	many := site{rand.New(rand.NewPCG(3, 3))}.reviewed(30000)
	for _, c := range []struct {
		name   string
		change func(*Reviewed, *Options)
		says   string
	}{
		{"too little", func(_ *Reviewed, o *Options) { o.Objective = fnrUpTo(0.01, 0.9) }, "critical FNR"},
		{"a class nobody saw", func(r *Reviewed, _ *Options) {
			r.Outcomes = slices.Clone(r.Outcomes)
			for i := range r.Outcomes {
				r.Outcomes[i].Truth = 0
			}
		}, "critical"},
		{"a range nobody saw", func(r *Reviewed, _ *Options) {
			r.Outcomes = slices.Clone(r.Outcomes)
			for i := range r.Outcomes {
				r.Outcomes[i].Propensity = 1
			}
			safe := slices.IndexFunc(r.Outcomes, func(o Outcome) bool { return o.Truth+o.Predicted == 0 && !o.Deferred })
			for range 2 { // one in either half
				o := r.Outcomes[safe]
				o.Propensity = 1e-4
				r.Outcomes = append(r.Outcomes, o)
			}
			r.LeastPropensity = 1e-4
		}, "tenth"},
		{"overdue", func(r *Reviewed, _ *Options) { r.Overdue = []Overdue{{Number: 400, Weight: 10}} }, "critical FNR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, o := many, siteOptions(t, 0.15, 0.9)
			for o.Seed = range uint64(8) { // some halves have both rare inputs
				changed := r
				c.change(&changed, &o)
				report, err := FromOutcomes(changed, o)
				if err != nil {
					t.Fatal(err)
				}
				if report.Refusal != nil && report.Policy == nil && strings.Contains(report.Refusal.Reason, c.says) {
					return
				}
			}
			t.Error("nothing was refused for this reason")
		})
	}
}

// TestFromOutcomesBet holds the p-value against a product by hand.
func TestFromOutcomesBet(t *testing.T) {
	const a, least = 0.2, 0.1
	b := newBets(a, least)
	z := []float64{-a, (1 - a) / 0.5, -a / 0.25}
	wealth := 0.0
	for k := range 12 {
		lambda := 0.98 * least / (1 - a) / math.Pow(2, float64(k))
		product := 1.0
		for _, v := range z {
			b.logs[k] += math.Log1p(-lambda * v)
			product *= 1 - lambda*v
		}
		wealth += product / 12
	}
	if got, want := b.pValue(), min(1, 1/wealth); math.Abs(got-want) > 1e-12 {
		t.Errorf("p-value %v, expected %v", got, want)
	}
}

// TestFromOutcomesAttempts expects a second attempt on the same outcomes to be void.
func TestFromOutcomesAttempts(t *testing.T) {
	r := site{rand.New(rand.NewPCG(3, 3))}.reviewed(30000)
	o := siteOptions(t, 0.15, 0.8)
	for attempt, target := range []float64{0.15, 0.15, 0.16} {
		o.Objective = fnrUpTo(target, 0.8)
		report, err := FromOutcomes(r, o)
		if err != nil || report.Policy == nil {
			t.Fatalf("attempt %d: %v, %+v", attempt, err, report)
		}
		if void, other := report.Certificate.Void != "", attempt == 2; void != other {
			t.Errorf("attempt %d: void %q", attempt, report.Certificate.Void)
		}
		o.Replaces = report.Policy
	}
}

// TestFromOutcomesFaults checks that what cannot be is refused with its place.
func TestFromOutcomesFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Reviewed, *Options)
		says   string
	}{
		{"none", func(r *Reviewed, _ *Options) { r.Outcomes = nil }, "no outcomes"},
		{"class", func(r *Reviewed, _ *Options) { r.Outcomes[1].Truth = 2 }, "outcome 1"},
		{"propensity", func(r *Reviewed, _ *Options) { r.Outcomes[0].Propensity = 0 }, "outcome 0"},
		{"below the least", func(r *Reviewed, _ *Options) { r.LeastPropensity = 1 }, "least"},
		{"overdue", func(r *Reviewed, _ *Options) { r.Overdue = []Overdue{{1, 11}} }, "overdue 0"},
		{"coverage", func(_ *Reviewed, o *Options) { o.Objective = Objective{Coverage: 0.8} }, "bounds on misses"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, o := site{rand.New(rand.NewPCG(1, 1))}.reviewed(100), siteOptions(t, 0.1, 0.9)
			c.change(&r, &o)
			if _, err := FromOutcomes(r, o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
