package audit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// modelOf returns a policy with an audit block whose propensities follow a risk of mean root 0.1.
func modelOf(a policy.Audit) *policy.Policy {
	if a.PredictedCritical == "" {
		a.PredictedCritical = policy.CriticalAudited
	}
	return &policy.Policy{
		Hash: strings.Repeat("0a", 32), Audit: &a, Risk: &policy.Risk{},
		Calibration: &policy.Calibration{MeanRootRisk: 0.1},
	}
}

func keyOf(t testing.TB) *receipt.DrawKey {
	t.Helper()
	keys, err := receipt.ParseKeys("keys", []byte(strings.Repeat("5a", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return keys.DrawKey()
}

var (
	retained = policy.Decision{Action: policy.Retain}
	deferred = policy.Decision{Action: policy.Defer}
	nan      = math.NaN()
)

func TestPropensity(t *testing.T) {
	half := policy.Audit{Rate: 0.02, M: 0.5, PredictedCritical: policy.CriticalAudited}
	free := half
	free.PredictedCritical = policy.CriticalFree
	noRisk, noMean, none := modelOf(half), modelOf(half), modelOf(half)
	noRisk.Risk, noMean.Calibration, none.Audit = nil, nil, nil
	for _, c := range []struct {
		name    string
		p       *policy.Policy
		stratum receipt.Stratum
		risk    float64
		want    float64
	}{
		{"deferred", modelOf(half), receipt.Deferred, 0.01, 1},
		{"called critical", modelOf(half), receipt.CalledCritical, nan, 0.02},
		{"called critical, free", modelOf(free), receipt.CalledCritical, nan, 1},
		{"of mean root risk", modelOf(half), receipt.CalledSafe, 0.01, 0.02},
		{"without risk", modelOf(half), receipt.CalledSafe, 0, 0.01},
		{"of four times the root", modelOf(half), receipt.CalledSafe, 0.16, 0.02 * (0.5 + 0.5*4)},
		{"of unknown risk", modelOf(half), receipt.CalledSafe, nan, 0.02},
		{"a certainty", modelOf(policy.Audit{Rate: 0.5, M: 0.5}), receipt.CalledSafe, 0.64, 1},
		{"uniform", modelOf(policy.Audit{Rate: 0.02, M: 1}), receipt.CalledSafe, 0.64, 0.02},
		{"a policy without a risk", noRisk, receipt.CalledSafe, 0.64, 0.02},
		{"a policy without a mean", noMean, receipt.CalledSafe, 0.64, 0.02},
		{"no audits, called safe", none, receipt.CalledSafe, 0.64, 0},
		{"no audits, called critical", none, receipt.CalledCritical, nan, 0},
		{"no audits, deferred", none, receipt.Deferred, 0.1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := NewPlan(c.p).Propensity(c.stratum, c.risk); !(math.Abs(got-c.want) <= 1e-15) {
				t.Errorf("%v, expected %v", got, c.want)
			}
		})
	}
}

func TestStratum(t *testing.T) {
	for _, c := range []struct {
		action   policy.Action
		critical bool
		want     receipt.Stratum
	}{
		{policy.Defer, false, receipt.Deferred}, {policy.Defer, true, receipt.Deferred},
		{policy.Retain, true, receipt.CalledCritical}, {policy.Retain, false, receipt.CalledSafe},
		{policy.Observe, true, receipt.CalledCritical}, {policy.Observe, false, receipt.CalledSafe},
	} {
		if got := Stratum(policy.Decision{Action: c.action}, c.critical); got != c.want {
			t.Errorf("%v, called critical %v: %v, expected %v", c.action, c.critical, got, c.want)
		}
	}
}

// TestLeastPropensity checks that no input has less than the least propensity of its stratum, and
// that the cap leaves inputs called critical alone.
func TestLeastPropensity(t *testing.T) {
	key := keyOf(t)
	rapid.Check(t, func(t *rapid.T) {
		a := policy.Audit{
			Rate: rapid.Float64Range(1e-4, 1).Draw(t, "rate"), M: rapid.Float64Range(0.01, 1).Draw(t, "m"),
			PredictedCritical: rapid.SampledFrom([]policy.AuditedCritical{policy.CriticalAudited, policy.CriticalFree}).Draw(t, "critical"),
			Cap:               rapid.SampledFrom([]float64{0, 0.1, 10, 1e6}).Draw(t, "cap"),
		}
		auditor := NewAuditor(modelOf(a))
		for i := range rapid.IntRange(1, 200).Draw(t, "inputs") {
			critical, risk := rapid.Bool().Draw(t, "critical"), rapid.Float64Range(0, 1).Draw(t, "risk")
			d := rapid.SampledFrom([]policy.Decision{retained, deferred, {Action: policy.Observe}}).Draw(t, "decision")
			drawn := auditor.Draw(key, int64(i)*second/2, d, critical, risk, nil, 30, nil)
			least := float32(LeastPropensity(&a, drawn.Stratum))
			if drawn.Propensity < least*(1-1e-6) || drawn.Propensity > 1 {
				t.Fatalf("%+v, expected a propensity from %v to 1", drawn, least)
			}
			if drawn.Stratum == receipt.CalledCritical && drawn.Propensity != least {
				t.Fatalf("%+v, expected %v whatever the cap", drawn, least)
			}
			if drawn.Stratum == receipt.Deferred && !drawn.Review || drawn.Free && drawn.Review {
				t.Fatalf("%+v", drawn)
			}
		}
	})
	if LeastPropensity(nil, receipt.CalledSafe) != 0 || LeastPropensity(nil, receipt.Deferred) != 1 {
		t.Error("a policy without audits")
	}
}

// TestShares checks that reviews weighted by 1/propensity count all inputs, by id and at random. The
// margin is six standard errors, which are at most sqrt(1/least propensity) for an input.
func TestShares(t *testing.T) {
	key := keyOf(t)
	for _, withID := range []bool{true, false} {
		t.Run(fmt.Sprintf("with an id: %v", withID), func(t *testing.T) {
			const n = 100_000
			a := NewAuditor(modelOf(policy.Audit{Rate: 0.05, M: 0.5}))
			reviews, weighted, expected := 0.0, 0.0, 0.0
			for i := range n {
				var id []byte
				if withID {
					id = strconv.AppendInt(nil, int64(i), 10)
				}
				risk := float64(i%100) / 1000
				drawn := a.Draw(key, 0, retained, false, risk, id, 30, []float64{0.5, 0.5})
				expected += float64(drawn.Propensity)
				if drawn.Review {
					reviews++
					weighted += 1 / float64(drawn.Propensity)
				}
				if (drawn.Hash != 0) != withID {
					t.Fatalf("%+v", drawn)
				}
			}
			if off := math.Abs(reviews - expected); off > 6*math.Sqrt(expected) {
				t.Errorf("%v reviews, expected %.0f", reviews, expected)
			}
			if off := math.Abs(weighted - n); off > 6*math.Sqrt(n/0.025) {
				t.Errorf("the reviews stand for %.0f inputs, expected %d", weighted, n)
			}
		})
	}
}

// TestRetries checks that a retry draws as its first try did, in every process, and that ids which
// come again in every batch are drawn anew.
func TestRetries(t *testing.T) {
	const ids, batches = 50, 200
	a, other := NewAuditor(modelOf(policy.Audit{Rate: 0.1, M: 1})), NewAuditor(modelOf(policy.Audit{Rate: 0.1, M: 1}))
	key, same := keyOf(t), keyOf(t)
	audited := make([]int, ids)
	for batch := range batches {
		mean := []float64{float64(batch) / batches, 1 - float64(batch)/batches}
		for i := range ids {
			id := []byte(strconv.Itoa(i))
			drawn := a.Draw(key, 0, retained, false, nan, id, 30, mean)
			if again := other.Draw(same, 5*second, retained, false, nan, id, 30, mean); again != drawn {
				t.Fatalf("%+v, and again %+v", drawn, again)
			}
			if drawn.Review {
				audited[i]++
			}
		}
	}
	for i, n := range audited {
		if n < 2 || n > 50 { // 20 on average; outside with a probability of 3e-7
			t.Errorf("id %d is audited in %d of %d batches", i, n, batches)
		}
	}
}

// TestCap checks how the cap lowers propensities in busy hours, and that it gives way rather than
// make them invisible.
func TestCap(t *testing.T) {
	key := keyOf(t)
	for _, c := range []struct {
		name             string
		cap              float64
		safe, critical   int // inputs a second
		least, most      float64
		factor, exceeded float64 // of the last hour; exceeded as a share of the inputs called safe
	}{
		{"a quiet hour", 100, 1, 0, 72, 72, 1, 0},
		{"no cap", 0, 100, 10, 7920, 7920, 1, 0},
		{"a busy hour", 100, 4, 0, 99, 101, 100.0 / 288, 0},
		{"a busy hour with inputs called critical", 100, 2, 1, 99, 101, 28.0 / 144, 0},
		{"an hour too busy", 100, 100, 0, 719, 721, 0.1, 1},
		{"too many called critical", 100, 1, 2, 144 + 7.1, 144 + 7.3, 0.1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := NewAuditor(modelOf(policy.Audit{Rate: 0.02, M: 1, Cap: c.cap}))
			issued, exceeded, last := 0.0, 0, Drawn{}
			for moment := range 3 * 3600 {
				if moment == 2*3600 {
					issued, exceeded = 0, 0
				}
				now := int64(1e15) + int64(moment)*second
				for range c.critical {
					issued += float64(a.Draw(key, now, retained, true, nan, nil, 30, nil).Propensity)
				}
				for range c.safe {
					last = a.Draw(key, now, retained, false, nan, nil, 30, nil)
					issued += float64(last.Propensity)
					if last.Exceeded {
						exceeded++
					}
				}
			}
			if issued < c.least-1e-3 || issued > c.most+1e-3 {
				t.Errorf("%.2f audits in the third hour, expected %v to %v", issued, c.least, c.most)
			}
			if got := float64(last.Propensity) / 0.02; math.Abs(got-c.factor) > 0.01*c.factor {
				t.Errorf("propensities are lowered to %.4f, expected %.4f", got, c.factor)
			}
			if got := float64(exceeded) / float64(3600*c.safe); got != c.exceeded {
				t.Errorf("the cap gave way for %v of the inputs, expected %v", got, c.exceeded)
			}
		})
	}
	t.Run("a burst after a quiet hour", func(t *testing.T) {
		a := NewAuditor(modelOf(policy.Audit{Rate: 0.5, M: 1, Cap: 12}))
		draw := func(now int64, critical bool) Drawn {
			return a.Draw(key, now, retained, critical, nan, nil, 30, nil)
		}
		for range 100 {
			draw(1e15, false)
		}
		if got := draw(1e15+hour, false).Propensity; got != 0.5 {
			t.Errorf("%v, expected 0.5: the audits of an hour before are no longer in the average", got)
		}
		for range 10 { // 30 audits an hour, in the average of the last ten minutes
			draw(1e15+3*hour, true)
		}
		if got := draw(1e15+3*hour+10*second, false); got.Propensity != 0.05 || !got.Exceeded {
			t.Errorf("%+v, expected the cap to give way after a burst of inputs called critical", got)
		}
	})
	t.Run("a clock set back", func(t *testing.T) {
		a := NewAuditor(modelOf(policy.Audit{Rate: 1, M: 1, Cap: 1}))
		for _, now := range []int64{1e15, 1e15 - hour, 1e15 - hour + second} {
			a.Draw(key, now, retained, false, nan, nil, 30, nil)
		}
		if got := a.Draw(key, 1e15-hour+2*second, retained, false, nan, nil, 30, nil).Propensity; got != 0.1 {
			t.Errorf("%v, expected the cap to go on", got)
		}
	})
}

func TestSurge(t *testing.T) {
	a, key := NewAuditor(modelOf(policy.Audit{Rate: 0.001, M: 0.5, Cap: 1})), keyOf(t)
	draw := func(critical bool) Drawn {
		return a.Draw(key, 0, retained, critical, 0, []byte("1"), 30, nil)
	}
	calm, critical := draw(false), draw(true)
	a.Surge(true)
	surging := calm
	surging.Propensity, surging.Review = 1, true
	if diff := cmp.Diff([]Drawn{surging, critical}, []Drawn{draw(false), draw(true)}); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	a.Surge(false)
	if diff := cmp.Diff(calm, draw(false)); diff != "" {
		t.Errorf("after the surge (-expected +got):\n%s", diff)
	}
}

// race reports whether the race detector is on. It makes sync.Pool forget things on purpose.
var race bool

func TestAllocations(t *testing.T) {
	if race {
		t.Skip("under the race detector pools forget")
	}
	a, key := NewAuditor(modelOf(policy.Audit{Rate: 0.02, M: 0.5, Cap: 10})), keyOf(t)
	id, mean, now := []byte("study/1234"), make([]float64, 26), int64(0)
	for name, id := range map[string][]byte{"with an id": id, "without": nil} {
		if n := testing.AllocsPerRun(1000, func() {
			now += second / 10
			a.Draw(key, now, retained, false, 0.01, id, 30, mean)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkDrawAndSeal measures what a receipt costs: its draw, and sealing it.
func BenchmarkDrawAndSeal(b *testing.B) {
	keys, err := receipt.ParseKeys("keys", []byte(strings.Repeat("5a", 32)))
	if err != nil {
		b.Fatal(err)
	}
	sealer := receipt.NewSealer(keys)
	for _, classes := range []int{2, 10, 26, 1000} {
		b.Run(fmt.Sprintf("classes=%d", classes), func(b *testing.B) {
			a := NewAuditor(modelOf(policy.Audit{Rate: 0.02, M: 0.5, Cap: 100}))
			id, mean, room := []byte("study/1234"), make([]float64, classes), make([]byte, 0, receipt.Size)
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				now++
				drawn := a.Draw(sealer.DrawKey(), now, retained, false, 0.01, id, 30, mean)
				r := receipt.Receipt{Stratum: drawn.Stratum, Propensity: drawn.Propensity, Review: drawn.Review, Draw: drawn.Hash}
				sealer.Seal(room, &r)
			}
		})
	}
}
