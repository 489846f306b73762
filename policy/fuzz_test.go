package policy

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzParse checks that Parse returns for any bytes, either with faults that each have a place and
// a reason, or with a set of valid policies.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse(File{"fuzz.yaml", data})
		if err != nil {
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("%T, want Faults", err)
			}
			for i, fault := range faults {
				if fault.File != "fuzz.yaml" || fault.Line < 1 || fault.Col < 1 || fault.Reason == "" {
					t.Errorf("fault %+v has no place or no reason", fault)
				}
				if i > 0 && fault.Line < faults[i-1].Line {
					t.Errorf("fault %v comes after %v", fault, faults[i-1])
				}
			}
			return
		}
		again, err := Parse(File{"other.yaml", append([]byte("# a comment\n"), data...)})
		if err == nil && again.Hash() != set.Hash() {
			t.Error("a comment changes the hash")
		}
		for _, p := range set.All() {
			checkInvariants(t, p)
			if text := p.Marshal(); len(text) <= MaxFileBytes {
				checkMarshal(t, p)
			}
			p.Explain()
			p.Warnings()
			p.Decide(Evidence{Primary: math.NaN(), Fallback: math.NaN(), Skewness: make([]float64, len(p.Classes))})
		}
	})
}

// checkInvariants checks what holds for every policy that Parse returns.
func checkInvariants(t *testing.T, p *Policy) {
	t.Helper()
	check := func(ok bool, invariant string) {
		t.Helper()
		if !ok {
			t.Errorf("model %q: broken: %s", p.Name, invariant)
		}
	}
	k := len(p.Classes)
	within := func(set []int) bool {
		return slices.IsSorted(set) && !slices.ContainsFunc(set, func(c int) bool { return c < 0 || c >= k })
	}
	finite := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	noneShared := !slices.ContainsFunc(p.Safe, func(c int) bool { return slices.Contains(p.Critical, c) })

	check(IsName(p.Name), "a name")
	check(len(p.Hash) == 64 && p.Hash == p.hash(), "a hash")
	check(k >= 2 && k <= maxClasses, "classes in number")
	check(len(slices.Compact(slices.Sorted(slices.Values(p.Classes)))) == k, "classes are unique")
	check(!slices.Contains(p.Classes, ""), "classes have names")
	check(within(p.Critical) && within(p.Safe) && noneShared, "disjoint ascending sets")
	check(len(p.Critical)*len(p.Safe) <= MaxPairs, "pairs are bounded")
	check(p.ExpectedPasses == 0 || p.ExpectedPasses >= p.FewestPasses, "expected passes suffice")
	check(p.ExpectedPasses <= maxPasses && p.FewestPasses <= maxPasses, "passes are bounded")
	if p.Kind == Dirichlet {
		check(p.FewestPasses == 1 && p.ExpectedPasses == 1, "dirichlet is one row")
	} else {
		check(p.FewestPasses >= 2, "two passes")
		check(!p.Gate.ReadsSkewness() || p.skewnessCap(p.FewestPasses) > p.ReliabilityThreshold, "the gate can open")
	}
	check(p.SumTolerance >= 1e-7 && p.SumTolerance <= 0.1, "sum tolerance")
	check(p.Tensor != "" && isPrintable(p.Tensor, maxText), "the name of a tensor")
	check(p.ReliabilityThreshold > 0 && finite(p.ReliabilityThreshold), "reliability threshold")
	check(p.TopClasses >= 1 && p.TopClasses <= k, "top classes")
	check(p.Pairs == SafeCriticalPairs || k <= maxClassesForAllPairs, "all pairs of few classes")
	for _, r := range []Rule{p.Primary, p.Fallback} {
		check(slices.Contains(RuleScores(), r.Score), "a score")
		check(finite(r.Threshold) && !math.Signbit(r.Threshold), "a threshold")
	}
	for _, r := range p.reachable() {
		check(p.Observes() || r.HasThreshold, "a threshold where the gate can reach")
		check(!r.Score.needsCritical() || len(p.Critical) > 0, "a critical set for the score")
		check(!r.Score.needsSafe() || len(p.Safe) > 0, "a safe set for the score")
	}
	check(!p.Gate.ReadsSkewness() || len(p.Critical) > 0, "a critical set for the gate")
	check(p.Scope == AllInputs || len(p.Critical) > 0, "a critical set for the scope")
	for _, w := range p.PairWeights {
		check(has(p.Safe, w.Safe) && has(p.Critical, w.Critical), "weights of safe x critical pairs")
		check(finite(w.Weight) && w.Weight != 1, "weights that say something")
	}
	check(p.Risk != nil || !p.comparesRisk(), "a risk model where a rule needs it")
	if r := p.Risk; r != nil {
		check(len(p.Critical) > 0 && r.CalledSafe.Slope >= 0 && r.CalledCritical.Slope >= 0, "a risk that does not fall")
		check(len(r.Quantiles) == Levels && slices.IsSorted(r.Quantiles), "quantiles of risk")
		check(r.Quantiles[0] >= 0 && r.Quantiles[Levels-1] <= 1, "probabilities")
		check(r.Prevalence > 0 && r.Prevalence < 1, "a prevalence")
	}
	if g := p.Guard; g != nil {
		check(slices.Contains(GuardScores(), g.Score) && finite(g.Threshold), "a guard")
	}
	if c := p.Calibration; c != nil {
		checkCalibrationInvariants(check, p, c)
	}
	if s := p.EarlyStopping; s != nil {
		checkSettleInvariants(check, p, s)
	}
}

func checkSettleInvariants(check func(bool, string), p *Policy, s *EarlyStopping) {
	check(forms["sha256"].accepts(s.PolicyHash), "the hash of the policy that was settled")
	check(s.Order == AnyOrder || s.Order == MembersOrder, "an order")
	check(s.Rule.Form.Check() == nil && s.Rule.Passes <= maxEarlyStopPasses, "a rule that can be used, of few passes")
	check(s.Inputs >= 0 && s.Seed <= math.MaxInt && s.MeanPasses >= 0, "counts")
	c, share := s.Certificate, func(x float64) bool { return x > 0 && x < 1 }
	check(share(c.Disagreement) && share(c.Confidence), "a certificate")
	check(0 <= c.Disagreements && c.Disagreements <= c.Inputs, "disagreements are inputs")
	for _, r := range []*ReleasedShare{&c.Released, c.CriticalReleased} {
		check(r == nil || r.AtMost > 0 && r.AtMost <= 1 && 0 <= r.Released && r.Released <= r.Deferred, "released are deferred")
	}
	rule := p.EarlyStop()
	check((rule != nil) == (s.PolicyHash == p.HashWithoutEarlyStop()), "a rule for this policy")
	if rule == nil {
		check(p.Hash == p.HashWithoutEarlyStop(), "a rule that is not in force is not in the hash")
		return
	}
	check(rule == &s.Rule && p.WhyNoEarlyStop() == "", "a rule where there can be one")
	check(rule.Passes == p.ExpectedPasses && rule.Fewest >= max(p.FewestPasses, 2), "passes that the policy takes")
	check(p.Hash != p.HashWithoutEarlyStop(), "a rule in force is in the hash")
}

func checkCalibrationInvariants(check func(bool, string), p *Policy, c *Calibration) {
	check(c.PolicyHash == "" || forms["sha256"].accepts(c.PolicyHash), "the hash of a policy")
	check(isPrintable(c.EarlierAttempt, maxSentence), "an earlier attempt in words")
	check(isPrintable(c.Unsupported, maxSentence), "what the recording does not support, in words")
	check(c.Posterior == "" || IsName(c.Posterior), "a posterior's name")
	check(c.Scope == "" || c.Scope == p.Scope, "a calibration of the policy's scope")
	check(c.Seed <= math.MaxInt, "a seed")
	r := c.Recording
	check(r.Passes == 0 || r.Passes >= p.FewestPasses, "calibrated on passes that the policy takes")
	check(r.CriticalInputs >= 0 && (r.Inputs == 0 || r.CriticalInputs <= r.Inputs), "critical inputs are inputs")
	for _, i := range []*Interval{c.ExpectedCoverage, c.ExpectedCriticalMissRate} {
		check(i == nil || 0 <= i.Low && i.Low <= i.Value && i.Value <= i.High && i.High <= 1, "an interval of shares")
	}
	if r := c.Reference; r != nil {
		check(r.Inputs >= 1 && len(r.Classes) >= 1, "a reference of something")
		seen, sum := make(map[int]bool), 0.0
		for _, class := range r.Classes {
			check(class.Class >= 0 && class.Class < len(p.Classes) && !seen[class.Class], "each class of a reference once")
			seen[class.Class] = true
			sum += class.Predicted
			for _, q := range [][]float64{class.Epistemic, class.Skewness} {
				check(len(q) == Levels && slices.IsSorted(q) && q[0] >= 0 && !math.IsInf(q[Levels-1], 1), "quantiles")
			}
		}
		check(sum < 1.01, "shares of a whole")
	}
	if t := c.Certificate; t != nil {
		check(t.Kind == LearnThenTest, "a kind of certificate")
		check(t.Target > 0 && t.Target < 1, "a target")
		check(t.Confidence > 0 && t.Confidence < 1, "a confidence")
		check(t.Misses >= 0 && t.Misses <= t.Cases, "misses are cases")
	}
}
