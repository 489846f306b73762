package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// These tests draw recordings from a population whose truth is known, and compare what is claimed
// of the policies with it. Seeds are fixed; margins are three standard errors of the draws, so that
// another seed passes too.

// population holds inputs from which recordings are drawn with replacement.
type population struct {
	table  *eval.Table
	labels []int
}

func newPopulation(m made) population {
	table, labels := m.table(rand.New(rand.NewPCG(11, 12)))
	return population{table, labels}
}

func (p population) draw(n int, seed uint64) (*eval.Table, []int) {
	rng := rand.New(rand.NewPCG(seed, 13))
	inputs, labels := make([]int, n), make([]int, n)
	for j := range inputs {
		inputs[j] = rng.IntN(p.table.Inputs)
		labels[j] = p.labels[inputs[j]]
	}
	return p.table.Select(inputs), labels
}

// truth returns what a policy does on the whole population.
func (p population) truth(of *policy.Policy) eval.Selective {
	return eval.Select(p.labels, p.table.Predicted, retainedBy(of, p.table), p.table.Spec.Critical)
}

// calibrate draws recordings of n inputs, and calibrates on each.
func (p population) calibrate(t *testing.T, recordings, n int, o Options) []*Report {
	t.Helper()
	var all []*Report
	for seed := range uint64(recordings) {
		table, labels := p.draw(n, seed)
		o.Seed = seed
		all = append(all, calibrated(t, table, labels, o))
	}
	return all
}

// TestCertificatesAreKept checks that Learn-then-Test is violated at most as often as the
// confidence allows. Noise whose critical FNR is just above the target is the worst case: every
// certificate is then a violation, and some of many rules and points look safe.
func TestCertificatesAreKept(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const confidence, target = 0.9, 0.2
	for _, c := range []struct {
		name          string
		missed        float64 // share of critical inputs
		signal        float64
		passes        int // with 2 no gate can open
		recordings    int
		leastCoverage float64 // certified on average, so that refusing everything does not pass
	}{
		{"noise", 0.21, 0, 2, 80, 0},
		{"noise and gates", 0.21, 0, 10, 10, 0},
		{"signal", 0.35, 1.5, 2, 40, 0.3},
	} {
		p := newPopulation(made{n: 4000, passes: c.passes, critical: []int{1, 2}, share: 0.4, missed: c.missed, signal: c.signal})
		o := options(t, Objective{MaxCriticalFNR: target, Confidence: confidence}, policy.AllInputs, 0)
		violated, covered := 0, 0.0
		for _, found := range p.calibrate(t, c.recordings, 400, o) {
			if found.Policy != nil {
				s := p.truth(found.Policy)
				violated += index(s.CriticalFNR() > target)
				covered += s.Coverage() / float64(c.recordings)
			}
		}
		t.Logf("%s: %d of %d violated, mean coverage %.3f", c.name, violated, c.recordings, covered)
		n := float64(c.recordings)
		if most := n*(1-confidence) + 3*math.Sqrt(n*confidence*(1-confidence)); float64(violated) > most {
			t.Errorf("%s: %d of %d certificates are violated, at most %.1f may be", c.name, violated, c.recordings, most)
		}
		if covered < c.leastCoverage {
			t.Errorf("%s: mean certified coverage %v, want at least %v", c.name, covered, c.leastCoverage)
		}
	}
}

// TestExpectedIsUnbiased checks that the figures expected at a coverage are those of the
// population, although the best of many rules was taken. For scores that are noise, the critical
// FNR is that of retaining everything, whatever a rule promises on the data that chose it.
func TestExpectedIsUnbiased(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const recordings, n = 40, 150
	for _, signal := range []float64{0, 1} {
		p := newPopulation(made{n: 4000, passes: 2, critical: []int{1, 2}, share: 0.4, missed: 0.3, signal: signal})
		o := options(t, Objective{Coverage: 0.5}, policy.AllInputs, 0)
		var off, square, covered float64
		for _, found := range p.calibrate(t, recordings, n, o) {
			s := p.truth(found.Policy)
			d := *found.Expected.CriticalFNR - s.CriticalFNR()
			off += d / recordings
			square += d * d / recordings
			covered += s.Coverage() / recordings
			if e := found.Expected; math.Abs(e.Coverage-s.Coverage()) > 0.2 {
				t.Errorf("signal %v: coverage %v expected, the population shows %v", signal, e.Coverage, s.Coverage())
			}
		}
		se := math.Sqrt((square - off*off) / recordings)
		t.Logf("signal %v: off by %.4f (se %.4f), mean coverage %.3f", signal, off, se, covered)
		if math.Abs(off) > 3*se+0.01 {
			t.Errorf("signal %v: the expected critical FNR is off by %v (standard error %v)", signal, off, se)
		}
		if math.Abs(covered-0.5) > 0.02 {
			t.Errorf("signal %v: mean coverage %v, 0.5 was asked for", signal, covered)
		}
	}
}

// TestMissRateIsKept checks that a bound on the critical miss rate, of all critical inputs and of a
// class, is exceeded at most as often as the confidence allows: for independent inputs, and for groups
// of five that are all alike if calibration is told of them. If it is not told, it fails.
func TestMissRateIsKept(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const recordings, n, confidence, target = 60, 500, 0.9, 0.12
	p := newPopulation(made{n: 4000, passes: 2, critical: []int{1, 2}, share: 0.4, missed: 0.35, signal: 1})
	for _, c := range []struct {
		name    string
		size    int
		told    bool
		classes []ClassLimit
		fails   bool
	}{
		{"independent", 1, false, nil, false},
		{"a class too", 1, false, []ClassLimit{{"2", policy.CriticalMissRate, target}}, false},
		{"groups", 5, true, nil, false},
		{"groups that nobody tells of", 5, false, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, Objective{MaxCriticalMiss: target, ClassLimits: c.classes, Confidence: confidence}, policy.AllInputs, 0)
			violated, covered := 0, 0.0
			for seed := range uint64(recordings) {
				rng := rand.New(rand.NewPCG(seed, 14))
				var inputs, labels, groups []int
				for len(inputs) < n {
					i := rng.IntN(p.table.Inputs)
					for range c.size {
						inputs, labels, groups = append(inputs, i), append(labels, p.labels[i]), append(groups, i)
					}
				}
				if o.Seed, o.Groups = seed, nil; c.told {
					o.Groups = groups
				}
				found := calibrated(t, p.table.Select(inputs), labels, o)
				if found.Policy == nil {
					continue
				}
				retained := retainedBy(found.Policy, p.table)
				s := newSample(p.table, p.labels, policy.HandleByScore, policy.HandleByScore)
				exceeded := false
				for _, l := range o.Objective.limits(o.Base) {
					e := l.test(s, s.all(), retained)
					exceeded = exceeded || float64(e.misses) > l.target*float64(e.cases)
				}
				violated += index(exceeded)
				covered += p.truth(found.Policy).Coverage() / recordings
			}
			t.Logf("%d of %d violated, mean coverage %.3f", violated, recordings, covered)
			most := recordings*(1-confidence) + 3*math.Sqrt(recordings*confidence*(1-confidence))
			if failed := float64(violated) > most; failed != c.fails {
				t.Errorf("%d of %d certificates are violated, at most %.1f may be", violated, recordings, most)
			}
			if covered < 0.1 {
				t.Errorf("mean certified coverage %v: the test shows little", covered)
			}
		})
	}
}
