package policy

import (
	"fmt"
	"hash/fnv"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Audit says which of the retained inputs a person looks at, so that the truth of what the model
// kept is known, and what happens when the truth breaks the promise. It decides nothing about a
// single input: the hash does not cover it, and a change of it voids no certificate.
type Audit struct {
	// The share of the retained inputs that a person looks at, picked at random. `ckd outcomes plan`
	// says what rates cost and what they show.
	Rate float64 `key:"rate,required" range:"1e-5..1"`
	// The share of the rate that is the same for all inputs called safe. The rest goes to those of
	// higher risk, where the policy has a risk; 1 audits all alike.
	M float64 `key:"m" range:"0.01..1" default:"0.5"`
	// How retained inputs that are predicted critical are reviewed: audited at the rate, or free, where
	// the workflow works up all of them and at least 95% of their outcomes arrive whatever they say.
	PredictedCritical AuditedCritical `key:"predicted-critical,spelled" default:"audited"`
	// Audits an hour of one daemon. Above it, inputs called safe are audited less often, down to a
	// tenth. Where that is still too many, the cap gives way.
	Cap float64 `key:"cap" range:">0" otherwise:"none"`
	// How long outcomes may take. The inputs of a day, or of a period as long as this if it is shorter,
	// are judged this long after it.
	Due Period `key:"due" default:"14d"`
	// What the daemon does while the alarm is up: raise it, or also defer every input that is called
	// safe (defer), which needs a ledger and is also done until that has answered for the first time.
	// Never for missing outcomes, or for one class alone.
	OnBreach OnBreach `key:"on_breach,spelled" default:"alarm"`
	// The reviews per 1,000 inputs that on_breach defer will cause: a statement that there are people
	// for them.
	Surge float64 `key:"surge" range:"0..1000" otherwise:"none; **required** by on_breach defer"`
	// Outcomes, on average, between two false alarms while the risk is on its line. More make false
	// alarms rarer, and true ones later.
	RunLength float64 `key:"run_length" range:"1000..1e15" default:"2000000"`
	// The share of the critical inputs that readers are assumed to recognise. Below 1, shares are also
	// shown as they would be if readers missed the rest.
	ReaderSensitivity float64 `key:"reader_sensitivity" range:"0.01..1" default:"1"`
	// Properties of inputs, such as the site, whose results are told apart: at most 8. They get
	// intervals, and no alarms.
	Slices []Slice `key:"slices" otherwise:"none"`
}

// DefaultAuditM makes half of the rate follow the risk. Audits are then never much worse than
// uniform ones, and up to three times better.
const DefaultAuditM = 0.5

// DefaultRunLength is the number of outcomes between false alarms by default.
const DefaultRunLength = 2_000_000

// DefaultDue is the time within which outcomes are expected by default: 14 days.
const DefaultDue = 14 * day

// MaxSlices bounds the slices, for which receipts have room.
const MaxSlices = 8

// AuditedCritical says how inputs are reviewed that were retained and called critical.
type AuditedCritical string

// The ways to review them.
const (
	// CriticalAudited draws them at the rate, whatever the cap.
	CriticalAudited AuditedCritical = "audited"
	// CriticalFree takes the outcome of the workflow, which works up every such input, for a review.
	CriticalFree AuditedCritical = "free"
)

// OnBreach says what the daemon does while the alarm is up.
type OnBreach string

// The choices.
const (
	AlarmOnBreach OnBreach = "alarm" // raises the alarm
	DeferOnBreach OnBreach = "defer" // also defers everything that is called safe
)

// Slice is a property of inputs, such as the site, with the values that are told apart.
type Slice struct {
	// The property, as clients call it.
	Name string `key:"name,required" form:"name"`
	// The values that are told apart. Others count as none.
	Values []string `key:"values,required" range:"1..100"`
}

// SliceHash returns the number by which receipts know a value of a slice, and never 0. No two
// values that a policy declares share one.
func SliceHash(name, value string) uint16 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	sum := h.Sum64()
	return max(uint16(sum^sum>>16^sum>>32^sum>>48), 1)
}

// audit warns about the block audit.
func (w *warnings) audit() {
	a := w.Audit
	if len(w.Critical) == 0 {
		w.add("audit", "no class is critical: there are no misses that outcomes could count")
		return
	}
	if !w.Observes() && len(w.LinesInForce()) == 0 {
		w.add("audit", "no alarm is ever raised, since the policy has no line: calibrate again, or state calibrated.lines")
	}
	if w.Risk != nil && a.M < 1 && (w.Calibration == nil || w.Calibration.MeanRootRisk == 0) {
		w.add("audit.m", "has no effect: audits follow the risk only with calibrated.mean_root_risk, which ckd calibrate writes")
	}
	if w.Risk == nil && a.M != DefaultAuditM && a.M < 1 {
		w.add("audit.m", "has no effect: the policy has no risk that audits could follow")
	}
	if a.Surge > 0 && a.OnBreach != DeferOnBreach {
		w.add("audit.surge", "has no effect: it is for on_breach: %s", DeferOnBreach)
	}
}

// validate reports where the block contradicts itself or its policy.
func (a *Audit) validate(b *builder, p *Policy) {
	if a == nil {
		return
	}
	if a.OnBreach == DeferOnBreach && b.sound("audit.on_breach", "audit.surge") {
		if a.Surge == 0 {
			b.fault("audit.surge", "missing, expected the reviews per 1,000 inputs that on_breach %s will cause, as ckd outcomes plan "+
				"prints them", DeferOnBreach)
		}
		if p.Observes() {
			b.fault("audit.on_breach", "%s, but the policy has no thresholds, so that nothing is ever deferred: expected %s",
				DeferOnBreach, AlarmOnBreach)
		}
	}
	if n := len(a.Slices); n > MaxSlices {
		b.fault("audit.slices", "expected at most %d, found %d", MaxSlices, n)
	}
	b.checkSlices(a.Slices)
}

// checkSlices wants each slice once, and no two values with one hash.
func (b *builder) checkSlices(slices []Slice) {
	first, hashes := make(map[string]string), make(map[uint16]string)
	for i, s := range slices {
		at := fmt.Sprintf("audit.slices[%d]", i)
		if before, twice := first[s.Name]; twice && s.Name != "" {
			b.fault(at, "%s is given twice, first at %s", strictyaml.Quote(s.Name), b.where(before))
			continue
		}
		first[s.Name] = at
		for j, value := range s.Values {
			if value == "" {
				continue // has a fault
			}
			at, hash := fmt.Sprintf("%s.values[%d]", at, j), SliceHash(s.Name, value)
			if before, taken := hashes[hash]; taken {
				b.fault(at, "%s has the number in receipts of the one at %s, expected another spelling of either",
					strictyaml.Quote(value), b.where(before))
				continue
			}
			hashes[hash] = at
		}
	}
}
