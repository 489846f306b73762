package ledger_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// A bench is a ledger with a clock, keys, and one policy in force.
type bench struct {
	testing.TB
	*ledger.Ledger
	dir     string
	options ledger.Options
	now     time.Time
	keys    *receipt.Keys
	sealer  *receipt.Sealer
	policy  [32]byte
}

// day0 begins the first cohort.
var day0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

const (
	version = "model-7"
	// classes are a, b (critical) and c, d (safe).
	policyText = `models:
  - name: triage
    version: model-7
    classes: [a, b, c, d]
    critical: [a, b]
    kind: probabilities
    passes: {fewest: 4}
    primary: {score: entropy, threshold: 0.5}
    fallback: {score: maxprob, threshold: 0.5}
    audit: {rate: 0.02, predicted-critical: free}
    calibrated:
      expected_critical_miss_rate: {value: 0.1, low: 0.05, high: 0.2}
      certificate: {kind: learn-then-test, bounds: critical-fnr, target: 0.25, confidence: 0.9}
`
)

func openBench(t testing.TB, o ledger.Options) *bench {
	t.Helper()
	return openBenchOf(t, o, policyText)
}

// openBenchOf opens a bench whose ledger knows another policy.
func openBenchOf(t testing.TB, o ledger.Options, text string) *bench {
	t.Helper()
	b := &bench{TB: t, dir: t.TempDir(), now: day0, options: o}
	b.keys = outcometest.Keys(t, outcometest.Key)
	b.sealer = receipt.NewSealer(b.keys)
	if err := ledger.Begin(b.dir, ledger.Options{}); err != nil {
		t.Fatal(err)
	}
	b.open()
	t.Cleanup(func() { b.Ledger.Close() })
	b.policy = outcometest.Policy(t, text).HashBytes()
	if err := b.AddPolicy([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) open() {
	b.Helper()
	var err error
	if b.Ledger, err = ledger.Open(b.dir, b.withClock(b.options)); err != nil {
		b.Fatal(err)
	}
}

// withClock returns options with the keys and the clock of the bench.
func (b *bench) withClock(o ledger.Options) ledger.Options {
	o.Keys = func() *receipt.Keys { return b.keys }
	o.Now = func() time.Time { return b.now }
	return o
}

func (b *bench) reopen() {
	b.Helper()
	if err := b.Close(); err != nil {
		b.Fatal(err)
	}
	b.open()
}

// crash goes on with the files as they are, without closing them.
func (b *bench) crash() {
	b.Helper()
	left := b.dir
	b.dir = b.TempDir()
	if err := os.CopyFS(b.dir, os.DirFS(left)); err != nil {
		b.Fatal(err)
	}
	if err := b.Close(); err != nil {
		b.Fatal(err)
	}
	b.open()
}

// seal returns the receipt of a decision with the usual fields filled in.
func (b *bench) seal(r receipt.Receipt) []byte {
	if r.Policy == [32]byte{} {
		r.Policy = b.policy
	}
	if r.Version == 0 {
		r.Version = receipt.VersionHash(version)
	}
	if r.Time == 0 {
		r.Time = day0.UnixMicro()
	}
	if r.Risk == 0 {
		r.Risk = float32(math.NaN())
	}
	return b.sealer.Seal(nil, &r)
}

func deferred() receipt.Receipt {
	return receipt.Receipt{Stratum: receipt.Deferred, Action: 2, Reason: uint8(policy.AboveThreshold), Predicted: 2, Review: true,
		Propensity: 1}
}

func audited(pi float32) receipt.Receipt {
	return receipt.Receipt{Stratum: receipt.CalledSafe, Action: 1, Reason: uint8(policy.UnderThreshold), Predicted: 2, Review: true,
		Propensity: pi}
}

func free() receipt.Receipt {
	return receipt.Receipt{Stratum: receipt.CalledCritical, Action: 1, Reason: uint8(policy.PredictedCritical), Predicted: 0, Propensity: 1}
}

func receiptAt(r receipt.Receipt, t time.Time) receipt.Receipt {
	r.Time = t.UnixMicro()
	return r
}

func (b *bench) report(outcomes ...ledger.Outcome) []ledger.Answer {
	b.Helper()
	answers, err := b.Report("clinic", outcomes)
	if err != nil {
		b.Fatal(err)
	}
	return answers
}

func (b *bench) state() *promise.Promise {
	b.Helper()
	s, err := b.State(b.policy, version)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// stateIfAny returns nil while nothing was decided.
func (b *bench) stateIfAny() *promise.Promise {
	b.Helper()
	s, err := b.State(b.policy, version)
	if err != nil && !errors.Is(err, ledger.ErrNoPromise) {
		b.Fatal(err)
	}
	return s
}

func statuses(answers []ledger.Answer) []string {
	var s []string
	for _, a := range answers {
		text := a.Status.String()
		if a.Want != truth.WantNone {
			text += " " + a.Want.String()
		}
		s = append(s, text)
	}
	return s
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestStatuses(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(time.Hour)
	miss := b.seal(audited(0.1))
	plain := b.seal(deferred())
	for b.sampled(plain) {
		plain = b.seal(deferred())
	}
	reading := func(r []byte, truth, source string, minute int) ledger.Outcome {
		return ledger.Outcome{Receipt: r, Truth: truth, Source: source, At: day0.Add(time.Duration(minute) * time.Minute)}
	}
	turned := b.seal(audited(0.1))
	for b.sampled(turned) {
		turned = b.seal(audited(0.1))
	}
	b.report(reading(turned, "c", "ann", 1))
	early := b.seal(free())
	for b.sampled(early) {
		early = b.seal(free())
	}
	volunteered := audited(0.1)
	volunteered.Review = false
	other := deferred()
	other.Policy[0] = 1
	sighted := reading(b.seal(audited(0.1)), "c", "ann", 3)
	sighted.SawModel = true
	for _, c := range []struct {
		name    string
		outcome ledger.Outcome
		want    string
	}{
		{"counted", reading(plain, "c", "ann", 1), "counted"},
		{"repeated", reading(plain, "c", "ann", 1), "duplicate"},
		{"corrected", reading(plain, "d", "ann", 2), "corrected"},
		{"a correction that comes late", reading(plain, "c", "ann", 1), "duplicate"},
		{"another reader", reading(plain, "d", "bob", 4), "counted"},
		{"a miss", reading(miss, "a", "ann", 1), "second_read_wanted second_read"},
		{"the same miss", reading(miss, "a", "ann", 1), "duplicate second_read"},
		{"readers disagree", reading(miss, "c", "bob", 2), "second_read_wanted third_read"},
		{"a third decides", reading(miss, "a", "cem", 3), "counted"},
		{"corrected to a miss", reading(turned, "a", "ann", 2), "corrected second_read"},
		{"nobody asked", reading(b.seal(volunteered), "a", "ann", 1), "apart"},
		{"had seen the answer", sighted, "apart"},
		{"a policy that nobody told", reading(b.seal(other), "a", "ann", 1), "policy_unknown"},
		{"no such class", reading(plain, "x", "ann", 1), "invalid"},
		{"no source", reading(plain, "a", "", 1), "invalid"},
		{"from the future", reading(plain, "a", "ann", 90), "invalid"},
		{"a little before the decision", reading(early, "a", "ann", -5), "counted"},
		{"before the decision", reading(plain, "a", "ann", -6), "invalid"},
		{"cut", reading(plain[:len(plain)-1], "a", "ann", 1), "forged"},
		{"empty", reading(nil, "a", "ann", 1), "forged"},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, statuses(b.report(c.outcome)), []string{c.want}) })
	}
}

// TestSentAgainWithoutTimes sends a file without times again and again, as cron does.
func TestSentAgainWithoutTimes(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(time.Hour)
	undated := ledger.Outcome{Receipt: b.seal(deferred()), Truth: "c", Source: "room"}
	b.report(undated)
	for range 70 {
		b.now = b.now.Add(time.Hour)
		if got := b.report(undated)[0].Status; got != ledger.Duplicate {
			t.Fatalf("sent again: %v, expected a duplicate", got)
		}
	}
	b.now = b.now.Add(30 * 24 * time.Hour)
	s := b.state()
	same(t, s.Mature.Readers.Corrected, uint64(0))
	if lag := s.Mature.Lag.Median.Value; lag > 4000 {
		t.Errorf("the truth was found after %v s, expected the hour of the first report", lag)
	}
	undated.Truth = "d"
	same(t, b.report(undated)[0].Status, ledger.Corrected)
}

// sampled reports whether a second reading of a receipt is wanted whatever the first says.
func (b *bench) sampled(sealed []byte) bool {
	_, id, err := b.keys.Open(sealed)
	if err != nil {
		b.Fatal(err)
	}
	return ledger.Sampled(b.keys, id)
}

// many is how many outcomes TestShuffled has. A million take a minute for each round.
var many = flag.Int("many", 0, "outcomes of TestShuffled; 0 means 20,000, and 5,000 with -short")

// TestShuffled expects figures to depend on the set of outcomes alone, bit for bit. It reports
// outcomes, some of them repeated, in a new order in each round, and looks at the state now and then.
func TestShuffled(t *testing.T) {
	n, rounds := *many, 3
	if n == 0 {
		if n = 20_000; testing.Short() {
			n = 5_000
		}
	}
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	outcomes := b.simulate(n)
	var first *promise.Promise
	for round := range rounds {
		b := openBench(t, ledger.NoSync(ledger.Options{}))
		b.now = day0.Add(30 * 24 * time.Hour)
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		sent := slices.Clone(outcomes)
		for i := range len(outcomes) / 10 { // some come twice
			sent = append(sent, outcomes[i*7%len(outcomes)])
		}
		rng.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
		for len(sent) > 0 {
			k := min(1+rng.IntN(4000), len(sent))
			b.report(sent[:k]...)
			sent = sent[k:]
			if rng.IntN(20) == 0 { // takes what is mature with what has come
				b.state()
			}
		}
		b.reopen()
		b.now = day0.Add(60 * 24 * time.Hour)
		s := b.state()
		if first == nil {
			first = s
			t.Logf("%d decided, FNR %v in [%v, %v], %+v", s.Mature.Decided, s.Mature.MissRate.Value, s.Mature.MissRate.Low, s.Mature.MissRate.High, s.Mature.MissRate.Monitor)
			continue
		}
		same(t, s, first)
	}
}

// simulate returns outcomes of decisions of 20 days, some corrected.
func (b *bench) simulate(n int) []ledger.Outcome {
	rng := rand.New(rand.NewPCG(7, 7))
	var outcomes []ledger.Outcome
	for len(outcomes) < n {
		var r receipt.Receipt
		truth := "c"
		switch x := rng.Float64(); {
		case x < .3:
			r = deferred()
			if rng.IntN(2) == 0 {
				truth = "a"
			}
		case x < .7:
			r = free()
			if rng.IntN(10) > 0 {
				truth = "a"
			}
		default:
			r = audited(float32(.02 + .2*rng.Float64()))
			r.Risk = float32(rng.Float64() * .1)
			if rng.Float64() < .05 {
				truth = "b"
			}
		}
		r = receiptAt(r, day0.Add(time.Duration(rng.IntN(20*86400))*time.Second))
		r.Draw = 1 + rng.Uint64N(uint64(n)*2)
		sealed := b.seal(r)
		when := time.UnixMicro(r.Time).Add(time.Duration(rng.IntN(5*86400)) * time.Second)
		for k := range 1 + max(0, rng.IntN(8)-6) {
			outcomes = append(outcomes, ledger.Outcome{Receipt: sealed, Truth: truth, Source: fmt.Sprint("reader ", rng.IntN(5)),
				At: when.Add(time.Duration(k) * time.Hour)})
			truth = "d"
		}
	}
	return outcomes
}
