package policy

import (
	"fmt"
	"strconv"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// auditFields are the fields of the block audit.
var auditFields = []field{
	{
		name: "rate", required: true,
		is: number{within: strictyaml.Between(1e-5, 1), at: func(b *builder) *float64 { return &b.Audit.Rate }},
		doc: "The share of the retained inputs that a person looks at, picked at random. `ckd outcomes plan` says what rates " +
			"cost and what they show.",
	},
	{
		name: "m", standard: DefaultAuditM,
		is: number{within: strictyaml.Between(0.01, 1), at: func(b *builder) *float64 { return &b.Audit.M }},
		doc: "The share of the rate that is the same for all inputs called safe. The rest goes to those of higher risk, where the " +
			"policy has a risk; 1 audits all alike.",
	},
	{
		name: "predicted-critical", standard: CriticalAudited, spelled: true,
		is: choice[AuditedCritical]{[]AuditedCritical{CriticalAudited, CriticalFree},
			func(b *builder) *AuditedCritical { return &b.Audit.PredictedCritical }},
		doc: "How retained inputs that are predicted critical are reviewed: audited at the rate, or free, where the workflow works " +
			"up all of them and at least 95% of their outcomes arrive whatever they say.",
	},
	{
		name: "cap", standardWords: "none",
		is: number{within: strictyaml.Above(0), at: func(b *builder) *float64 { return &b.Audit.Cap }},
		doc: "Audits an hour of one daemon. Above it, inputs called safe are audited less often, down to a tenth. Where that is " +
			"still too many, the cap gives way.",
	},
	{
		name: "due", standard: DefaultDue,
		is: period{func(b *builder) *Period { return &b.Audit.Due }},
		doc: "How long outcomes may take. The inputs of a day, or of a period as long as this if it is shorter, are judged this " +
			"long after it.",
	},
	{
		name: "on_breach", standard: AlarmOnBreach, spelled: true,
		is: choice[OnBreach]{[]OnBreach{AlarmOnBreach, DeferOnBreach}, func(b *builder) *OnBreach { return &b.Audit.OnBreach }},
		doc: "What the daemon does while the alarm is up: raise it, or also defer every input that is called safe (defer). Never " +
			"for missing outcomes, or for one class alone.",
	},
	{
		name: "surge", standardWords: "none; **required** by on_breach defer",
		is:  number{within: strictyaml.Between(0, 1000), at: func(b *builder) *float64 { return &b.Audit.Surge }},
		doc: "The reviews per 1,000 inputs that on_breach defer will cause: a statement that there are people for them.",
	},
	{
		name: "slices", standardWords: "none",
		is: mappings{
			count: func(b *builder) int { return len(b.Audit.Slices) },
			add:   func(b *builder, _ string) { b.Audit.Slices = append(b.Audit.Slices, Slice{}) },
			flow:  true,
			fields: []field{
				{
					name: "name", required: true,
					is:  text{pattern: namePattern, at: func(b *builder) *string { return &b.slice().Name }},
					doc: "The property, as clients call it.",
				},
				{
					name: "values", required: true,
					is:  names{least: 1, most: maxSliceValues, at: func(b *builder) *[]string { return &b.slice().Values }},
					doc: "The values that are told apart. Others count as none.",
				},
			},
		},
		doc: "Properties of inputs, such as the site, whose results are told apart: at most 8. They get intervals, and no alarms.",
	},
}

// maxSliceValues bounds the values of a slice.
const maxSliceValues = 100

// slice returns the entry of audit.slices that is being read or checked.
func (b *builder) slice() *Slice { return &b.Audit.Slices[b.item] }

// period holds a length of time.
type period struct{ at func(*builder) *Period }

func (period) words() string {
	return fmt.Sprintf("a whole number and d, h, m or s, as in 14d, from %v to %v", Second, maxPeriod)
}

func (t period) read(b *builder, v strictyaml.Value) {
	s, ok := v.Text()
	if !ok {
		return
	}
	for _, u := range periodUnits {
		digits, found := cutSuffix(s, u.letter)
		if n, err := strconv.Atoi(digits); found && err == nil && n > 0 && n <= int(maxPeriod/u.length) {
			*t.at(b) = Period(n) * u.length
			return
		}
	}
	v.Fault("expected %s, found %s", t.words(), strictyaml.Quote(s))
}

// cutSuffix returns what stands before a suffix, and whether it is digits followed by the suffix.
func cutSuffix(s, suffix string) (digits string, found bool) {
	n := len(s) - len(suffix)
	if n <= 0 || s[n:] != suffix || s[0] < '0' || s[0] > '9' {
		return "", false
	}
	return s[:n], true
}

func (t period) check(b *builder, path string, _ bool) {
	if p := *t.at(b); p < 0 || p > maxPeriod {
		b.expected(path, t, int(p))
	}
}

func (t period) value(b *builder) any { return *t.at(b) }

func (t period) fill(b *builder, standard any) {
	if at := t.at(b); *at == 0 {
		*at = standard.(Period)
	}
}

func (period) schema() *schema { return &schema{Type: "string", Pattern: "^[0-9]{1,9}[dhms]$"} }
