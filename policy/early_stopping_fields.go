package policy

import (
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// earlyStoppingFields are the fields of the block settle.
var earlyStoppingFields = []field{
	{
		name: "policy_hash", required: true,
		is: text{pattern: sumPattern, at: func(b *builder) *string { return &b.EarlyStopping.PolicyHash }},
		doc: "The hash of the policy without this block. If a threshold, the gate or any other field has changed since, the rule is " +
			"not in force: all passes decide, and `ckd check` and the daemon's log say so.",
	},
	{
		name: "order", standard: AnyOrder, spelled: true,
		is:  choice[PassOrder]{[]PassOrder{AnyOrder, MembersOrder}, func(b *builder) *PassOrder { return &b.EarlyStopping.Order }},
		doc: "The order in which passes must come: any, as draws of one posterior may, or as recorded, as the members of an ensemble must.",
	},
	{
		name: "software",
		is:   text{at: func(b *builder) *string { return &b.EarlyStopping.Software }},
		doc:  "What learned the rule, with its version.",
	},
	{
		name: "passes_file",
		is:   text{at: func(b *builder) *string { return &b.EarlyStopping.PassesFile }},
		doc:  "The file with the passes that it was learned from and certified on.",
	},
	{
		name: "passes_sha256",
		is:   text{pattern: sumPattern, at: func(b *builder) *string { return &b.EarlyStopping.PassesSHA256 }},
		doc:  "The SHA-256 of that file.",
	},
	{
		name: "inputs",
		is:   whole{1, maxCount, func(b *builder) *int { return &b.EarlyStopping.Inputs }},
		doc:  "How many inputs it was learned from. Others certified it.",
	},
	{
		name: "seed", standardWords: "`0`",
		is:  seed{func(b *builder) *uint64 { return &b.EarlyStopping.Seed }},
		doc: "The seed of the random choices.",
	},
	{
		name: "mean_passes",
		is:   number{within: strictyaml.AtLeast(0), at: func(b *builder) *float64 { return &b.EarlyStopping.MeanPasses }},
		doc:  "The mean number of passes that the certifying inputs used.",
	},
	{
		name: "halves_differ", standardWords: "unknown", spelled: true,
		is: number{
			within: strictyaml.Between(0, 1),
			begin:  func(b *builder) { b.EarlyStopping.HalvesDiffer = new(float64) },
			at:     func(b *builder) *float64 { return b.EarlyStopping.HalvesDiffer },
		},
		doc: "The share of these inputs on which random halves of the passes disagree: this much a decision varies by sampling alone.",
	},
	{
		name: "certificate", required: true,
		is: mapping{fields: []field{
			{
				name: "disagreement", required: true,
				is: number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.EarlyStopping.Certificate.Disagreement }},
				doc: "The largest share of inputs that are decided otherwise than by all passes: with another action, or retained both " +
					"times but predicted critical only once. Above 0 and below 1.",
			},
			{
				name: "confidence", required: true,
				is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.EarlyStopping.Certificate.Confidence }},
				doc: "The probability with which each of these shares is not exceeded, above 0 and below 1.",
			},
			{
				name: "inputs",
				is:   whole{1, maxCount, func(b *builder) *int { return &b.EarlyStopping.Certificate.Inputs }},
				doc:  "How many inputs the certificate rests on.",
			},
			{
				name: "groups", standardWords: "none: all inputs were counted as independent",
				is:  whole{0, maxCount, func(b *builder) *int { return &b.EarlyStopping.Certificate.Groups }},
				doc: "How many groups of inputs, such as patients, it rests on.",
			},
			{
				name:   "disagreements",
				is:     whole{0, maxCount, func(b *builder) *int { return &b.EarlyStopping.Certificate.Disagreements }},
				beside: func(b *builder) bool { return b.EarlyStopping.Certificate.Inputs > 0 },
				doc:    "How many of these were decided otherwise.",
			},
			{
				name: "released", required: true,
				is:  mapping{flow: true, fields: releasedFields(func(b *builder) *ReleasedShare { return &b.EarlyStopping.Certificate.Released })},
				doc: "The share of the inputs deferred by all passes that are retained instead, bounded by a test of its own.",
			},
			{
				name: "critical_released", standardWords: "not certified",
				is: inFlow(optional(func(b *builder) **ReleasedShare { return &b.EarlyStopping.Certificate.CriticalReleased },
					releasedFields(func(b *builder) *ReleasedShare { return b.EarlyStopping.Certificate.CriticalReleased }))),
				doc: "The same for critical inputs.",
			},
		}},
		doc: "The guarantee, for inputs drawn as those that certified the rule.",
	},
	{
		name: "patience", standardWords: "`0`",
		is: number{within: strictyaml.Between(0, earlystop.Never), at: func(b *builder) *float64 { return &b.EarlyStopping.Rule.Patience }},
		doc: "An input whose log-odds are this far above their boundary is looked at again after twice its passes; half as far adds " +
			"half as many. With 0 it is looked at after every pass.",
	},
	{
		name: "boundaries", standardWords: "none, with `steps`",
		is: mappings{
			flow:  true,
			count: func(b *builder) int { return len(b.formSoFar().Boundaries) },
			add: func(b *builder, _ string) {
				f := b.form()
				f.Boundaries = append(f.Boundaries, earlystop.Boundary{Retain: -earlystop.Never, Defer: -earlystop.Never})
			},
			fields: []field{
				{
					name: "passes", required: true,
					is: whole{2, MaxEarlyStopPasses - 1, func(b *builder) *int { return &b.form().Boundaries[b.item].Passes }},
					doc: "The passes that the input has: at least passes.fewest, fewer than passes.expected, more than at the boundary " +
						"before. Between two boundaries, they and the weights are interpolated linearly in the logarithm of the passes; " +
						"before the first and after the last nothing is decided.",
				},
				{
					name: "retain", standardWords: "never",
					is:     number{within: logOdds, at: func(b *builder) *float64 { return &b.form().Boundaries[b.item].Retain }},
					beside: func(b *builder) bool { return b.form().Boundaries[b.item].Retain != -earlystop.Never },
					doc:    "The largest sum of the terms of `retain` at which an input that would be retained is decided early.",
				},
				{
					name: "defer", standardWords: "never",
					is:     number{within: logOdds, at: func(b *builder) *float64 { return &b.form().Boundaries[b.item].Defer }},
					beside: func(b *builder) bool { return b.form().Boundaries[b.item].Defer != -earlystop.Never },
					doc:    "The same for `defer`, and inputs that would be deferred.",
				},
			},
		},
		doc: "The rule, after some numbers of passes. A rule has either boundaries or steps.",
	},
	{
		name: "retain", standardWords: "none",
		is:  terms(func(f *earlystop.Form) *[]earlystop.Term { return &f.Retain }),
		doc: "The terms of the sum for inputs that would be retained: it is low where later passes hardly change that.",
	},
	{
		name: "defer", standardWords: "none",
		is:  terms(func(f *earlystop.Form) *[]earlystop.Term { return &f.Defer }),
		doc: "The same for inputs that would be deferred.",
	},
	{
		name: "steps", standardWords: "none, with `boundaries`",
		is: mappings{
			count: func(b *builder) int { return len(b.steps) },
			add:   func(b *builder, at string) { b.steps = append(b.steps, step{path: at, is: earlystop.NoStep()}) },
			fields: []field{
				{
					name: "passes", required: true,
					is: whole{2, MaxEarlyStopPasses - 1, func(b *builder) *int { return &b.steps[b.item].passes }},
					doc: "The passes that the input has: at least passes.fewest, fewer than passes.expected, more than at the step before. " +
						"After numbers of passes that are left out nothing is decided.",
				},
				{
					name: "retain", standardWords: "never",
					is:     mapping{fields: sideFields(func(b *builder) *earlystop.Side { return &b.steps[b.item].is.Retain })},
					beside: func(b *builder) bool { return b.steps[b.item].is.Retain.AtMost != -earlystop.Never },
					doc:    "When an input that would be retained is decided early.",
				},
				{
					name: "defer", standardWords: "never",
					is:     mapping{fields: sideFields(func(b *builder) *earlystop.Side { return &b.steps[b.item].is.Defer })},
					beside: func(b *builder) bool { return b.steps[b.item].is.Defer.AtMost != -earlystop.Never },
					doc:    "When an input that would be deferred is decided early.",
				},
			},
		},
		doc: "The rule of earlier builds, for each number of passes after which something may be decided.",
	},
}

// formSoFar returns the form of the rule, or an empty one.
func (b *builder) formSoFar() *earlystop.Form {
	if f := b.EarlyStopping.Rule.Form; f != nil {
		return f
	}
	return &earlystop.Form{}
}

// form returns the form of the rule, which the first field that needs it begins.
func (b *builder) form() *earlystop.Form {
	r := &b.EarlyStopping.Rule
	if r.Form == nil {
		r.Form = &earlystop.Form{}
	}
	return r.Form
}

// terms returns the shape of one of the sums of a form.
func terms(of func(*earlystop.Form) *[]earlystop.Term) mappings {
	term := func(b *builder) *earlystop.Term { return &(*of(b.form()))[b.item] }
	return mappings{
		flow:  true,
		count: func(b *builder) int { return len(*of(b.formSoFar())) },
		add:   func(b *builder, _ string) { to := of(b.form()); *to = append(*to, earlystop.Term{}) },
		fields: []field{
			{
				name: "of", required: true,
				is:  choice[earlystop.Statistic]{earlystop.StatisticNames[:], func(b *builder) *earlystop.Statistic { return &term(b).Of }},
				doc: "The statistic: see docs/settle-method.md.",
			},
			{
				name: "times", standardWords: "none",
				is:  choice[earlystop.Statistic]{earlystop.StatisticNames[:], func(b *builder) *earlystop.Statistic { return &term(b).Times }},
				doc: "The statistic that it is multiplied by. Each product stands in a sum once.",
			},
			{
				name: "weight", required: true,
				is:  number{within: logOdds, at: func(b *builder) *float64 { return &term(b).Weight }},
				doc: "The weight at the first boundary.",
			},
			{
				name: "last", standardWords: "`weight`", spelled: true,
				is: number{
					within: logOdds,
					begin:  func(b *builder) { term(b).Last = new(float64) },
					at:     func(b *builder) *float64 { return term(b).Last },
				},
				doc: "The weight at the last boundary.",
			},
		},
	}
}

func sideFields(of func(*builder) *earlystop.Side) []field {
	return []field{
		{
			name: "at_most", required: true,
			is:  number{within: logOdds, at: func(b *builder) *float64 { return &of(b).AtMost }},
			doc: "The log-odds, of being overturned by the passes to come, up to which it is decided early.",
		},
		{
			name: "coefficients", required: true,
			is:  coefficients(of),
			doc: "The quadratic form of five statistics that gives these log-odds: see docs/settle.md.",
		},
	}
}

func releasedFields(of func(*builder) *ReleasedShare) []field {
	return []field{
		{
			name: "at_most", required: true,
			is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &of(b).AtMost }},
			doc: "The largest share.",
		},
		{
			name: "deferred",
			is:   whole{0, maxCount, func(b *builder) *int { return &of(b).Deferred }},
			doc:  "How many inputs deferred by all passes it rests on.",
		},
		{
			name:   "released",
			is:     whole{0, maxCount, func(b *builder) *int { return &of(b).Released }},
			beside: func(b *builder) bool { return of(b).Deferred > 0 },
			doc:    "How many of these were retained.",
		},
	}
}
