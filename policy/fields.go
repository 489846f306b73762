package policy

import (
	"fmt"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// The bounds of a policy.
const (
	// MaxFileBytes bounds the size of a file.
	MaxFileBytes = strictyaml.MaxBytes
	// MaxClasses bounds the classes of a model.
	MaxClasses = 100_000
	// MaxPasses bounds the passes of an input.
	MaxPasses = 1_000_000
	// MaxPairs bounds the safe x critical pairs, each of which is memory in
	// every open input.
	MaxPairs = 1_000_000
)

// DefaultReliabilityThreshold is the paper's.
const DefaultReliabilityThreshold = 0.3

// DefaultSumTolerance takes the sum of rows that were rounded to half precision.
const DefaultSumTolerance = 1e-3

// field is a row of the table of fields, which is all that decoding, the JSON
// schema and docs/policy.md know of a field.
type field struct {
	name     string
	required bool
	// standard is the value of a field that is not given, in words where it
	// depends on other fields (and is not in the schema then).
	standard      any
	standardWords string
	is            shape
	doc           string
}

// modelsField is the one field of a policy file.
const modelsField = "models"

// modelFields is the table: the fields of a model. Fields of fields are in
// their shapes.
var modelFields = []field{
	{
		name: "name", required: true,
		is: text{pattern: namePattern, set: func(d *draft, s string) { d.p.Name = s }},
		doc: "The model's name: what clients call it, a metric label, and part of URLs. Letters, digits, dot, dash " +
			"and underscore, at most 128, the first a letter or digit. No two models share one.",
	},
	{
		name: "version", standard: "",
		is:  text{set: func(d *draft, s string) { d.p.Version = s }},
		doc: "Your own text for this state of the policy. It is told with every decision and is not part of the hash.",
	},
	{
		name: "classes", required: true,
		is: names{least: 2, most: MaxClasses, set: func(d *draft, n []named) { d.classes = n }},
		doc: "The model's classes in the order of its outputs, each letter by letter as written: " +
			"[no, yes, on] are three texts.",
	},
	{
		name: "critical", standardWords: "none",
		is:  names{most: MaxClasses, set: func(d *draft, n []named) { d.critical = n }},
		doc: "The classes that must not be missed. They may be left out when no score, gate or scope in use needs them.",
	},
	{
		name: "safe", standardWords: "the classes that are not critical",
		is:  names{most: MaxClasses, set: func(d *draft, n []named) { d.safe = n }},
		doc: "The classes whose confusion with critical ones counts in cbec. No class is both.",
	},
	{
		name: "kind", standard: Probabilities,
		is: choice[Kind]{[]Kind{Probabilities, Logits, Dirichlet}, func(d *draft, k Kind) { d.p.Kind = k }},
		doc: "What a row is: probabilities that sum to one, logits whose softmax is then computed in float64, or the " +
			"one row of positive concentrations of an evidential model.",
	},
	{
		name: "passes",
		is: mapping{fields: []field{
			{
				name: "fewest", standardWords: "the fewest that the gate can do with, at least 2",
				is: whole{1, MaxPasses, func(d *draft, n int) { d.p.FewestPasses = n }},
				doc: "An input that ends with fewer passes is an error. At least 2; with a gate that reads skewness, so many " +
					"that skewness can exceed the reliability threshold. Dirichlet: 1.",
			},
			{
				name: "expected", standardWords: "none",
				is: whole{1, MaxPasses, func(d *draft, n int) { d.p.ExpectedPasses = n }},
				doc: "An input is answered when it has this many passes. Without it, only when its caller says that it is " +
					"complete. Dirichlet: 1.",
			},
		}},
		doc: "How many passes an input has.",
	},
	{
		name: "sum_tolerance", standard: DefaultSumTolerance,
		is: number{strictyaml.Between(1e-7, 0.1), func(d *draft, x float64) { d.p.SumTolerance = x }},
		doc: "How far the sum of a row of probabilities may be from 1 before the row is refused. Rows are never " +
			"renormalised. Correct rounding alone costs up to 6e-8 in float32, 5e-4 in float16 and 4e-3 in bfloat16.",
	},
	{
		name: "variance", standard: Sample,
		is: choice[Variance]{[]Variance{Sample, Population}, func(d *draft, v Variance) { d.p.Variance = v }},
		doc: "What sums of squares are divided by: sample by passes - 1, population by passes, as the authors' own " +
			"code does. No meaning for dirichlet.",
	},
	{
		name: "reliability_threshold", standard: DefaultReliabilityThreshold,
		is:  number{strictyaml.Above(0), func(d *draft, x float64) { d.p.ReliabilityThreshold = x }},
		doc: "The skewness ratio above which C_k of a class is not trusted. It depends on the task.",
	},
	{
		name: "gate", standardWords: "any-critical; always for dirichlet",
		is: choice[Gate]{[]Gate{AnyCritical, DecidingClass, Always, Never}, func(d *draft, g Gate) { d.p.Gate = g }},
		doc: "When the fallback score decides: when any critical class is above the reliability threshold, when the " +
			"class with the largest critical C_k is, always, or never.",
	},
	{
		name: "scope", standard: AllInputs,
		is: choice[Scope]{[]Scope{AllInputs, PredictedSafe}, func(d *draft, s Scope) { d.p.Scope = s }},
		doc: "Which inputs may be deferred: all, or only those that are not predicted critical already " +
			"(predicted-safe).",
	},
	{
		name: "primary",
		is: mapping{fields: ruleFields(CCritMax, "decides unless the gate hands the input to the fallback",
			func(d *draft) *Rule { return &d.p.Primary })},
		doc: "The score that decides while C_k is trusted.",
	},
	{
		name: "fallback",
		is: mapping{fields: ruleFields(CBEC, "decides where the gate says so",
			func(d *draft) *Rule { return &d.p.Fallback })},
		doc: "The score that decides in its place.",
	},
	{
		name: "pair_weights", standardWords: "every pair weighs 1",
		is: mappings{
			begin: func(d *draft, v strictyaml.Value) { d.weights = append(d.weights, weight{at: v}) },
			fields: []field{
				{
					name: "safe", required: true,
					is:  name{func(d *draft, n named) { d.lastWeight().safe = n }},
					doc: "The safe class of the pair.",
				},
				{
					name: "critical", required: true,
					is:  name{func(d *draft, n named) { d.lastWeight().critical = n }},
					doc: "The critical class of the pair.",
				},
				{
					name: "weight", required: true,
					is:  number{strictyaml.AtLeast(0), func(d *draft, x float64) { d.lastWeight().weight = x }},
					doc: "How much the pair counts in cbec.",
				},
			},
		},
		doc: "Pairs of a safe and a critical class that count more or less than others in cbec.",
	},
	{
		name: "pairs", standard: SafeCriticalPairs,
		is: choice[Pairs]{[]Pairs{SafeCriticalPairs, AllPairs}, func(d *draft, p Pairs) { d.p.Pairs = p }},
		doc: fmt.Sprintf("Which pairs of classes are reported; all only up to %d classes. No score depends on it.",
			MaxClassesForAllPairs),
	},
	{
		name: "top_classes", standardWords: "10, or all classes where there are fewer",
		is:  whole{1, MaxClasses, func(d *draft, n int) { d.p.TopClasses = n }},
		doc: "How many of the most probable classes the truncated sum of C_k takes. No score depends on it.",
	},
	{
		name: "degenerate", standard: HandleDefer,
		is: choice[Handling]{handlings, func(d *draft, h Handling) { d.p.Degenerate = h }},
		doc: "What becomes of an input whose passes are all identical: its uncertainty is absent, not zero. score " +
			"treats it like any other.",
	},
	{
		name: "saturated", standard: HandleDefer,
		is:  choice[Handling]{handlings, func(d *draft, h Handling) { d.p.Saturated = h }},
		doc: "The same where the identical passes are one-hot, as a confident model gives them in float32.",
	},
}

var handlings = []Handling{HandleDefer, HandleRetain, HandleByScore}

func ruleFields(standard Score, when string, of func(*draft) *Rule) []field {
	return []field{
		{
			name: "score", standard: standard,
			is:  choice[Score]{Scores(), func(d *draft, s Score) { of(d).Score = s }},
			doc: "The score that " + when + ".",
		},
		{
			name: "threshold", standardWords: "none",
			is: number{strictyaml.AtLeast(0), func(d *draft, x float64) {
				of(d).Threshold, of(d).HasThreshold = x, true
			}},
			doc: "The input is retained exactly when this score is at or under it. A policy gives one for each score " +
				"that its gate can reach, or none at all and observes.",
		},
	}
}
