package metrics

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

// setProcessors sets the number of processors, and so of shards, for a test.
func setProcessors(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// TestShards counts messages on several goroutines, with equal and with different hints, during
// scrapes, while the policy changes back and forth. Every scrape sees messages whole, and nothing
// is lost.
func TestShards(t *testing.T) {
	const (
		writers, inputs, passes = 12, 5, 4
		scrapes                 = 100
	)
	setProcessors(t, 4)
	d := newDaemon(t, 2)
	p, m := manyClasses(t, 5, 1)
	next := *p
	next.Version = "next"
	models := []*Model{d.put(p, m), d.put(&next, m)} // both stay usable

	check := func() (total float64) {
		values := d.values(t)
		for _, name := range namesOf(values, "ckd_decisions_total") {
			total += values[name]
		}
		for name, per := range map[string]float64{
			`ckd_passes_total{model="m"}`:                       passes,
			`ckd_mutual_information_nats{model="m"}`:            1,
			`ckd_predictive_entropy_nats{model="m"}`:            1,
			`ckd_class_epistemic_nats{class="c0",model="m"}`:    1,
			`ckd_class_skewness_ratio{class="c1",model="m"}`:    1,
			`ckd_class_epistemic_nats{class="other",model="m"}`: 3,
		} {
			if got := values[name]; got != per*total {
				t.Errorf("%s is %v beside %v decisions, want %v", name, got, total, per*total)
			}
		}
		if int(total)%inputs != 0 {
			t.Errorf("%v inputs, want a multiple of %d", total, inputs)
		}
		return total
	}

	var all [writers][inputs]*engine.Outcome
	for w := range all {
		for i := range all[w] {
			outcomes(t, m, randomInputs(uint64(inputs*w+i), 1, passes, 5), func(o *engine.Outcome) { all[w][i] = o })
		}
		unforeseen := &all[w][0].Decision // no policy decides so, and there is no series of it yet
		unforeseen.Gate, unforeseen.Reason = policy.ByFallback, policy.IsSaturated
	}
	var messages atomic.Int64
	meanwhile(writers, func(w int) {
		rec := models[messages.Add(1)%2].Record(uint32(w / 2))
		for _, o := range all[w] {
			rec.Observe(o.Result, &o.Decision)
		}
		rec.Done()
	}, func() {
		for i := range scrapes {
			again := *p
			again.Version = fmt.Sprint(i)
			d.put(&again, m)
			runtime.Gosched()
		}
	}, func() {
		for range scrapes {
			check()
		}
	})
	if got := check(); got != inputs*float64(messages.Load()) {
		t.Errorf("%v inputs, want those of %d messages", got, messages.Load())
	}
}

// TestRecordElsewhere checks that Record takes another shard if one is locked.
func TestRecordElsewhere(t *testing.T) {
	setProcessors(t, 4)
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(p, m)
	one, two := model.Record(6), model.Record(6)
	if one == two || one.index != 2 {
		t.Errorf("shards %d and %d, want 2 and another", one.index, two.index)
	}
	two.Done()
	one.Done()
	if again := model.Record(2); again != one {
		t.Errorf("shard %d, want that of before, %d", again.index, one.index)
	} else {
		again.Done()
	}
}

// TestPanicWhileObserving checks that a panic leaves no shard locked.
func TestPanicWhileObserving(t *testing.T) {
	setProcessors(t, 1)
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(p, m)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a result of another plan was counted")
			}
		}()
		r := zeroResult(m, 3)
		r.C = nil
		model.Observe(0, r, observed)
	}()
	model.Observe(0, zeroResult(m, 3), observed)
	for name, v := range d.values(t) {
		if strings.HasPrefix(name, "ckd_class_epistemic_nats{") && v != 1 {
			t.Errorf("%s is %v, want 1", name, v)
		}
	}
}

// zeroResult returns a result of an input of k classes with all values 0.
func zeroResult(m *engine.Model, k int) *decomp.Result {
	r := m.Plan().NewResult()
	r.C, r.Skewness = make([]float64, k), make([]float64, k)
	return r
}
