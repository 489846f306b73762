package policy

import (
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/monitor/drift"
	"github.com/ckd-project/ckd/policy/risk"
)

// riskFields are the fields of the block risk.
var riskFields = []field{
	{
		name: "intercept", required: true,
		is:  number{within: logOdds, at: func(b *builder) *float64 { return &b.Risk.Model.Intercept }},
		doc: "The log-odds of being truly critical for an input called safe are this plus the weighted features of terms.",
	},
	{
		name: "terms", required: true,
		is: mappings{
			count: func(b *builder) int { return len(b.Risk.Model.Terms) },
			add: func(b *builder, _ string) {
				b.Risk.Model.Terms = append(b.Risk.Model.Terms, risk.Term{Class: noClass})
			},
			flow: true,
			fields: []field{
				{
					name: "feature", required: true,
					is: choice[risk.Feature]{risk.Features(), func(b *builder) *risk.Feature { return &b.term().Feature }},
					doc: "What is weighted. Log-odds, of values clipped to 1e-6 from 0 and 1: p_critical (of the mean predictions of " +
						"the critical classes together), largest_critical_mean, critical_mean (of one class), safe_share (of one safe " +
						"class among the safe ones). Others: safe_entropy (nats, of those shares), predicted_variation (log of 1e-6 + " +
						"C_k/mu_k of the most probable safe class), safe_variation (the same of the safe classes together).",
				},
				{
					name: "class", standardWords: "none; **required** by critical_mean and safe_share",
					is:     class{at: func(b *builder) *int { return &b.term().Class }, optional: true},
					beside: func(b *builder) bool { return b.term().Class != noClass },
					doc:    "The class of critical_mean, a critical one, or of safe_share, a safe one. Not for other features.",
				},
				{
					name: "weight", required: true,
					is: number{within: logOdds, at: func(b *builder) *float64 { return &b.term().Weight }},
					doc: "What the feature is multiplied by: at least 0 for p_critical, largest_critical_mean and critical_mean, so that the risk never falls as critical " +
						"classes get more probable.",
				},
			},
		},
		doc: "One entry for each feature, 1 to 12.",
	},
	{
		name: "called_critical", required: true,
		is: mapping{flow: true, fields: []field{
			{
				name: "intercept", required: true,
				is:  number{within: logOdds, at: func(b *builder) *float64 { return &b.Risk.CalledCritical.Intercept }},
				doc: "The log-odds where p_critical is a half.",
			},
			{
				name: "slope", required: true,
				is:  number{within: strictyaml.Between(0, logOdds.Most), at: func(b *builder) *float64 { return &b.Risk.CalledCritical.Slope }},
				doc: "What the log-odds of p_critical are multiplied by.",
			},
		}},
		doc: "The log-odds of being truly critical for an input called critical, which orders work lists and decides nothing.",
	},
	{
		name: "quantiles", required: true,
		is: numberList{
			count: drift.Levels, within: strictyaml.Between(0, 1), ascending: true,
			get: func(b *builder) []float64 { return b.Risk.Quantiles },
			set: func(b *builder, q []float64) { b.Risk.Quantiles = q },
		},
		doc: "The quantiles of the probability of being truly critical over the inputs of the calibration: of the levels 0, 1/64, " +
			"2/64, up to 1.",
	},
	{
		name: "prevalence", required: true,
		is: number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Risk.Prevalence }},
		doc: "The share of critical inputs that the numbers are for, above 0 and below 1. Where traffic has another share, all of " +
			"them are off.",
	},
}

// guardFields are the fields of the block guard.
var guardFields = []field{
	{
		name: "score", required: true,
		is:  choice[Score]{GuardScores(), func(b *builder) *Score { return &b.Guard.Score }},
		doc: "The score that tells inputs unlike those of the calibration.",
	},
	{
		name: "threshold", required: true,
		is:  number{within: strictyaml.AtLeast(0), at: func(b *builder) *float64 { return &b.Guard.Threshold }},
		doc: "An input for which it is above this is deferred as unfamiliar.",
	},
}
