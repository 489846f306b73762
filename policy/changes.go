package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Changes says in words what differs between two policies of a model, what matters most first: what
// a person meets who relied on the one before. It returns nil if the two decide, promise and record the
// same.
func Changes(before, after *Policy) []string {
	var changes []string
	said := []string{"Hash"}
	if changed := deciding(before, after); changed != "" {
		changes = append(changes, changed)
		said = append(said, "Gate", "Primary", "Fallback", "ReliabilityThreshold")
	}
	for _, a := range aspects {
		old, now := a.say(before), a.say(after)
		if old == now || a.ofDecisions && before.Observes() != after.Observes() {
			continue
		}
		said = append(said, a.fields...)
		switch {
		case old == "":
			changes = append(changes, "New: "+now)
		case now == "":
			changes = append(changes, "No longer: "+old)
		default:
			changes = append(changes, fmt.Sprintf("%s Before: %s", now, old))
		}
	}
	if fields := changedFields(before, after, said); len(fields) > 0 {
		changes = append(changes, "Other fields that changed: "+listed(fields)+".")
	}
	return changes
}

// deciding says how the thresholds changed, or else the rule that they belong to.
func deciding(before, after *Policy) string {
	old, now := before.rules(), after.rules()
	sameRule := before.Gate == after.Gate && before.Observes() == after.Observes() && len(old) == len(now) && (!before.Gate.ReadsSkewness() ||
		before.ReliabilityThreshold == after.ReliabilityThreshold)
	for i := range old {
		sameRule = sameRule && old[i].Score == now[i].Score
	}
	if !sameRule {
		return fmt.Sprintf("It now %s. Before, it %s.", after.verdict(), before.verdict())
	}
	var moved []string
	for i := range old {
		earlier, later := old[i].Threshold, now[i].Threshold
		if earlier == later {
			continue
		}
		effect := "more"
		if later > earlier {
			effect = "fewer"
		}
		score := old[i].Score
		a, b := score.Value(earlier), score.Value(later)
		if a == b { // the difference is in later digits
			a, b = strconv.FormatFloat(earlier, 'g', -1, 64), strconv.FormatFloat(later, 'g', -1, 64)
		}
		moved = append(moved, fmt.Sprintf("%s inputs are deferred by the %s: its threshold is %s, before %s", effect, score.Words(), b, a))
	}
	if len(moved) == 0 {
		return ""
	}
	s := strings.Join(moved, "; ") + "."
	return strings.ToUpper(s[:1]) + s[1:]
}

// rules returns the rules that can decide, those of a policy that observes too.
func (p *Policy) rules() (rules []Rule) {
	if p.Gate.ReachesPrimary() {
		rules = append(rules, p.Primary)
	}
	if p.Gate.ReachesFallback() {
		rules = append(rules, p.Fallback)
	}
	return rules
}

// verdict says what the policy does with inputs, as a verb.
func (p *Policy) verdict() string {
	if p.Observes() {
		return "observes, and defers no input"
	}
	return "defers an input when " + p.Condition()
}

// aspect is what one sentence says of a policy, by some of its fields.
type aspect struct {
	say    func(*Policy) string
	fields []string
	// ofDecisions says that policies that observe have no such sentence.
	ofDecisions bool
}

// aspects come in the order of what they mean to a person.
var aspects = []aspect{
	{(*Policy).explainClasses, []string{"Classes", "Critical", "Safe"}, false},
	{(*Policy).explainScope, []string{"Scope"}, true},
	{(*Policy).explainGuard, []string{"Guard"}, true},
	{ofCalibration(func(p *Policy) string {
		if p.Observes() {
			return ""
		}
		return p.expectation()
	}), []string{"Calibration"}, false},
	{ofCalibration((*Policy).explainGuarantee), []string{"Calibration"}, false},
	{(*Policy).explainLines, []string{"Calibration"}, false},
	{ofCalibration((*Policy).explainRecording), []string{"Calibration"}, false},
	{(*Policy).explainAudit, []string{"Audit"}, false},
	{(*Policy).explainLog, []string{"Log"}, false},
	{func(p *Policy) string { return strings.Join(p.explainEarlyStopping(), " ") }, []string{"EarlyStopping"}, false},
	{(*Policy).explainPasses, []string{"Kind", "FewestPasses", "ExpectedPasses", "SumTolerance"}, false},
	{(*Policy).explainIdentical, []string{"Degenerate", "Saturated"}, true},
	{(*Policy).explainWeights, []string{"PairWeights"}, false},
	{(*Policy).explainRisk, []string{"Risk"}, false},
	{(*Policy).explainVariance, []string{"Variance"}, false},
}

// ofCalibration returns say for policies that have a calibration.
func ofCalibration(say func(*Policy) string) func(*Policy) string {
	return func(p *Policy) string {
		if p.Calibration == nil {
			return ""
		}
		return say(p)
	}
}

// changedFields returns the keys of fields that changed, but for those about which something was said.
func changedFields(before, after *Policy, said []string) (keys []string) {
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range b.NumField() {
		field := b.Type().Field(i)
		if slices.Contains(said, field.Name) || reflect.DeepEqual(b.Field(i).Interface(), a.Field(i).Interface()) {
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("key"), ",")
		keys = append(keys, strings.Trim(field.Tag.Get("in")+"."+key, "."))
	}
	return keys
}
