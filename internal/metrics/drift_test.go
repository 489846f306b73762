package metrics

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/policy"
)

// TestDrift compares the series with a Monitor that is fed one input after the other.
func TestDrift(t *testing.T) {
	setProcessors(t, 1)
	d := newDaemon(t, 0)
	id, m := ofRecording(t, "digits-id")
	p := withReference(m.Policy(), id, id.classes()...)
	model := d.put(p, m)
	ref := p.Calibration.Reference
	monitor := drift.NewMonitor(ref)
	raised := 0.0
	inAlarm := make([]drift.Alarms, len(ref.Classes))
	epistemic, skewness := make([]*drift.Ranks, len(ref.Classes)), make([]*drift.Ranks, len(ref.Classes))
	for k, class := range ref.Classes {
		epistemic[k], skewness[k] = drift.NewRanks(class.Epistemic), drift.NewRanks(class.Skewness)
	}
	feed := func(from results, inputs int) {
		for i := 0; i < inputs; i += drift.BlockInputs {
			block := make([]drift.Block, len(ref.Classes))
			for _, r := range from[i : i+drift.BlockInputs] {
				model.Observe(0, r, observed)
				for k := range block {
					block[k].Epistemic += epistemic[k].Of(r.C[k])
					block[k].Skewness += skewness[k].Of(r.Skewness[k])
				}
				block[r.Predicted].Predicted++
			}
			monitor.Add(block)
			for k, a := range monitor.Alarms() {
				for _, rose := range []bool{
					a.Epistemic && !inAlarm[k].Epistemic, a.Skewness && !inAlarm[k].Skewness, a.Predicted && !inAlarm[k].Predicted,
				} {
					raised += oneIf(rose)
				}
				inAlarm[k] = a
			}
		}
	}
	total := 0
	check := func(inputs int) {
		t.Helper()
		total += inputs
		values := d.values(t)
		alarms := 0.0
		for w, inputs := range drift.Windows {
			_, filled := values[fmt.Sprintf(`ckd_drift_z{class="0",model="m",signal="epistemic",window="%d"}`, inputs)]
			if filled != (total >= inputs) {
				t.Errorf("window %d filled %v after %d inputs", inputs, filled, total)
			}
			if !filled {
				continue
			}
			for k, s := range monitor.Signals(w) {
				for signal, want := range map[string]drift.Signal{"epistemic": s.Epistemic, "skewness": s.Skewness, "predicted": s.Predicted} {
					at := fmt.Sprintf(`{class="%d",model="m",signal=%q,window="%d"}`, k, signal, inputs)
					shift, z := values["ckd_drift_shift"+at], values["ckd_drift_z"+at]
					if math.Abs(shift-want.Shift) > 1e-9 || math.Abs(z-want.Z) > 1e-9 {
						t.Errorf("%s after %d inputs: a shift of %v and z %v, want %v and %v", at, total, shift, z, want.Shift, want.Z)
					}
				}
			}
		}
		for name, v := range values {
			if strings.HasPrefix(name, "ckd_drift_alarm{") {
				alarms += v
			}
		}
		want := 0.0
		for _, a := range monitor.Alarms() {
			want += oneIf(a.Epistemic) + oneIf(a.Skewness) + oneIf(a.Predicted)
		}
		if alarms != want {
			t.Errorf("%v alarms after %d inputs, want %v", alarms, total, want)
		}
	}
	ood, _ := ofRecording(t, "digits-ood")
	check(0)
	feed(id, 56)
	check(56)
	feed(id[56:], 8)
	check(8)
	feed(slices.Concat(id, id, id), 1024)
	check(1024)
	feed(ood, 64)
	check(64)
	if raised == 0 {
		t.Fatal("no alarm of other digits")
	}
	feed(slices.Concat(id, id, id), 1024)
	check(1024)
	sum := 0.0
	values := d.values(t)
	for _, name := range namesOf(values, "ckd_drift_alarms_total") {
		sum += values[name]
	}
	if sum != raised {
		t.Errorf("%v alarms were raised, want %v", sum, raised)
	}
}

// TestDriftShards checks that the shards of inputs make no difference, nor do scrapes.
func TestDriftShards(t *testing.T) {
	id, m := ofRecording(t, "digits-id")
	ood, _ := ofRecording(t, "digits-ood")
	p := withReference(m.Policy(), id, id.classes()...)
	z := func(processors int, scrapes bool) map[string]float64 {
		setProcessors(t, processors)
		d := newDaemon(t, 0)
		model := d.put(p, m)
		rng := rand.New(rand.NewPCG(1, 2))
		for i, r := range slices.Concat(id, ood)[:1024] {
			model.Observe(rng.Uint32(), r, observed)
			if scrapes && i%3 == 0 {
				d.values(t)
			}
		}
		signals := only(d.values(t), "ckd_drift_z")
		maps.DeleteFunc(signals, func(name string, _ float64) bool { return !strings.Contains(name, `window="1024"`) })
		return signals
	}
	whole := z(1, false)
	if len(whole) != 3*7 {
		t.Errorf("%d signals, want 21", len(whole))
	}
	compare(t, whole, z(8, false), 1e-9)
	compare(t, whole, z(8, true), 1e-9)
}

// TestDriftReload checks that windows go on while the reference stays the same, whatever else of
// the policy changes, and begin anew with another reference.
func TestDriftReload(t *testing.T) {
	d := newDaemon(t, 0)
	id, m := ofRecording(t, "digits-id")
	ood, _ := ofRecording(t, "digits-ood")
	p := withReference(m.Policy(), id, 3, 4, 5)
	id = slices.Concat(id, id, id)
	observe := func(model *Model, from results) {
		for _, r := range from {
			model.Observe(0, r, observed)
		}
	}
	first := d.put(p, m)
	observe(first, id[:1016])
	observe(first, ood[:64])
	before := d.values(t)
	if got := sumOf(before, "ckd_drift_alarm{"); got == 0 {
		t.Fatal("no alarm of other digits")
	}

	// Another policy with the same reference and classes: thresholds and critical classes make no
	// difference, and both policies' inputs go into the same windows.
	other, n := parse(t, "name: m\nversion: two\nclasses: ['0', '1', '2', '3', '4', '5', '6']\ncritical: ['5']\n"+
		"gate: never\nprimary: {score: c_crit_max, threshold: 0.25}")
	second := *other
	second.Calibration = &policy.Calibration{Posterior: "else", Reference: p.Calibration.Reference}
	after := d.put(&second, n)
	compareDrift(t, before, d.values(t)) // the windows of before
	setProcessors(t, 1)
	alone := newDaemon(t, 0)
	observe(alone.put(p, m), slices.Concat(id[:1016], ood[:64], ood[:40], id[:200]))
	observe(first, ood[:40])
	observe(after, id[:200])
	values := d.values(t)
	compareDrift(t, alone.values(t), values) // as if the inputs were of one policy

	// Another reference: windows begin anew, counters go on, and the series of dropped classes are
	// deleted.
	next := d.put(withReference(m.Policy(), id[:400], 4, 5, 6), m)
	got := d.values(t)
	if len(namesOf(got, "ckd_drift_z")) != 0 || sumOf(got, "ckd_drift_alarm{") != 0 {
		t.Error("another reference did not begin the windows anew")
	}
	for _, name := range namesOf(values, "ckd_drift_alarms_total") {
		n, there := got[name]
		if gone := strings.Contains(name, `class="3"`); gone == there || there && n != values[name] {
			t.Errorf("%s is %v (%v), and was %v", name, n, there, values[name])
		}
	}
	for _, name := range namesOf(got, "ckd_drift_") {
		if strings.Contains(name, `class="3"`) {
			t.Errorf("%s is still there", name)
		}
	}
	observe(first, ood[:256]) // under a policy whose reference was replaced
	compareDrift(t, got, d.values(t))
	observe(next, ood[:64])
	if sumOf(d.values(t), "ckd_drift_alarm{") == 0 {
		t.Error("no alarm under the next policy")
	}

	// Without a reference there are no series, nor after Remove.
	d.put(m.Policy(), m)
	observe(next, id[:64])
	if left := namesOf(d.values(t), "ckd_drift_"); len(left) > 0 {
		t.Errorf("series without a reference: %q", left)
	}
	d.put(p, m)
	d.Remove("m")
	observe(first, id[:64])
	if left := namesOf(d.values(t), "ckd_drift_"); len(left) > 0 {
		t.Errorf("series without a policy: %q", left)
	}
	d.put(p, m)
	if len(namesOf(d.values(t), "ckd_drift_z")) > 0 {
		t.Error("a model that comes back does not begin anew")
	}
}

// TestDriftUndefined checks that values beyond the cells have a rank, and that NaN is neither above
// nor below.
func TestDriftUndefined(t *testing.T) {
	d := newDaemon(t, 0)
	id, m := ofRecording(t, "digits-id")
	model := d.put(withReference(m.Policy(), id, 0, 1, 2), m)
	r := *id[0]
	r.C, r.Skewness = slices.Clone(r.C), slices.Clone(r.Skewness)
	r.C[0], r.Skewness[0] = math.NaN(), math.NaN()
	r.C[1], r.Skewness[1] = math.Inf(1), math.MaxFloat64
	r.C[2], r.Skewness[2] = 0, 0
	for range 64 {
		model.Observe(0, &r, observed)
	}
	values := d.values(t)
	for class, want := range map[string]func(float64) bool{
		"0": func(v float64) bool { return v == 0 },
		"1": func(v float64) bool { return v == 0.5 },
		"2": func(v float64) bool { return v < -0.2 },
	} {
		for _, signal := range []string{"epistemic", "skewness"} {
			at := fmt.Sprintf(`ckd_drift_shift{class=%q,model="m",signal=%q,window="64"}`, class, signal)
			if v, ok := values[at]; !ok || !want(v) {
				t.Errorf("%s is %v (%v)", at, v, ok)
			}
		}
	}
}

func sumOf(values map[string]float64, prefix string) (sum float64) {
	for _, name := range namesOf(values, prefix) {
		sum += math.Abs(values[name])
	}
	return sum
}

// compareDrift compares all series of drift up to rounding.
func compareDrift(t *testing.T, want, got map[string]float64) {
	t.Helper()
	compare(t, only(want, "ckd_drift_"), only(got, "ckd_drift_"), 1e-9)
}

// results holds the results of the inputs of a recording.
type results []*decomp.Result

// ofRecording returns the results of a recording of digits, and a model for its classes.
func ofRecording(t testing.TB, name string) (all results, m *engine.Model) {
	t.Helper()
	_, m = parse(t, "name: m\nclasses: ['0', '1', '2', '3', '4', '5', '6']\ncritical: ['1']\npasses: {fewest: 2}\ngate: never")
	recorded(t, m, name, func(o *engine.Outcome) { all = append(all, o.Result) })
	return all, m
}

func (r results) classes() []int {
	var all []int
	for k := range r[0].C {
		all = append(all, k)
	}
	return all
}

// withReference returns the policy with a reference of the results.
func withReference(p *policy.Policy, of results, classes ...int) *policy.Policy {
	ref := &policy.Reference{Inputs: len(of)}
	for _, k := range classes {
		var c, skewness []float64
		share := 0.0
		for _, r := range of {
			c, skewness = append(c, r.C[k]), append(skewness, r.Skewness[k])
			share += oneIf(r.Predicted == k) / float64(len(of))
		}
		ref.Classes = append(ref.Classes, policy.ClassReference{
			Class: k, Predicted: share, Epistemic: drift.NewQuantiles(c), Skewness: drift.NewQuantiles(skewness),
		})
	}
	with := *p
	with.Calibration = &policy.Calibration{Reference: ref}
	return &with
}
