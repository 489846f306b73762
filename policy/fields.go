package policy

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/drift"
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

// DefaultTensor is the name of the tensor that has the passes.
const DefaultTensor = "passes"

// defaultTopClasses is for models that have as many.
const defaultTopClasses = 10

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
			"renormalised. Correct rounding alone costs up to 6e-8 in float32, 5e-4 in float16 and 4e-3 in bfloat16; what " +
			"comes as FP16 or BF16 by the Open Inference Protocol is allowed that rounding on top.",
	},
	{
		name: "tensor", standard: DefaultTensor,
		is: text{pattern: tensorPattern, set: func(d *draft, s string) { d.p.Tensor = s }},
		doc: "The name of the tensor that has the passes, in requests by the Open Inference Protocol: the output of " +
			"your classifier, where ckd gets its answer as it is. It is not part of the hash.",
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
		name: "top_classes", standardWords: fmt.Sprintf("%d, or all classes where there are fewer", defaultTopClasses),
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
	{
		name: "calibration", standardWords: "not told",
		is: mapping{begin: func(d *draft) { d.p.Calibration = &Calibration{} }, fields: calibrationFields},
		doc: "Where the thresholds come from, as ckd calibrate writes it. It decides nothing and is not part of the " +
			"hash, but the daemon counts traffic that differs from it.",
	},
	{
		name: "settle", standardWords: "never: all passes decide",
		is: mapping{begin: func(d *draft) { d.p.Settle = &Settle{Order: AnyOrder} }, fields: settleFields},
		doc: "When an input is settled before its last pass, for clients that accept it, as ckd calibrate --settle writes it. It is part " +
			"of the hash.",
	},
}

// calibrationFields are all optional but for what makes no sense without.
var calibrationFields = []field{
	{
		name: "software",
		is:   text{set: func(d *draft, s string) { d.p.Calibration.Software = s }},
		doc:  "What calibrated, with its version.",
	},
	{
		name: "policy_hash",
		is:   text{pattern: sumPattern, set: func(d *draft, s string) { d.p.Calibration.PolicyHash = s }},
		doc:  "The hash of the policy as it was calibrated. A policy with another was changed since.",
	},
	{
		name: "recording",
		is: mapping{fields: []field{
			{
				name: "passes_file",
				is:   text{set: func(d *draft, s string) { d.p.Calibration.Recording.PassesFile = s }},
				doc:  "The file with the passes.",
			},
			{
				name: "passes_sha256",
				is:   text{pattern: sumPattern, set: func(d *draft, s string) { d.p.Calibration.Recording.PassesSHA256 = s }},
				doc:  "Its SHA-256.",
			},
			{
				name: "labels_file",
				is:   text{set: func(d *draft, s string) { d.p.Calibration.Recording.LabelsFile = s }},
				doc:  "The file with the true classes.",
			},
			{
				name: "labels_sha256",
				is:   text{pattern: sumPattern, set: func(d *draft, s string) { d.p.Calibration.Recording.LabelsSHA256 = s }},
				doc:  "Its SHA-256.",
			},
			{
				name: "inputs",
				is:   whole{1, maxCount, func(d *draft, n int) { d.p.Calibration.Recording.Inputs = n }},
				doc:  "How many inputs it has.",
			},
			{
				name: "critical_inputs",
				is:   whole{0, maxCount, func(d *draft, n int) { d.p.Calibration.Recording.CriticalInputs = n }},
				doc:  "How many of them are critical.",
			},
			{
				name: "passes",
				is:   whole{1, MaxPasses, func(d *draft, n int) { d.p.Calibration.Recording.Passes = n }},
				doc:  "How many passes each of them has. Inputs with another number are counted as a mismatch.",
			},
		}},
		doc: "The labelled passes that it was calibrated on.",
	},
	{
		name: "posterior",
		is:   text{pattern: namePattern, set: func(d *draft, s string) { d.p.Calibration.Posterior = s }},
		doc: "How the passes were sampled, as in mc-dropout, low-rank-vi or ensemble. Streams and requests that state " +
			"another are counted as a mismatch.",
	},
	{
		name: "objective",
		is:   text{set: func(d *draft, s string) { d.p.Calibration.Objective = s }},
		doc:  "What was asked for, as in coverage 0.8.",
	},
	{
		name: "scope",
		is:   choice[Scope]{[]Scope{AllInputs, PredictedSafe}, func(d *draft, s Scope) { d.p.Calibration.Scope = s }},
		doc:  "The scope that it was calibrated for, which is the policy's.",
	},
	{
		name: "seed", standardWords: "`0`",
		is:  whole{0, math.MaxInt, func(d *draft, n int) { d.p.Calibration.Seed = uint64(n) }},
		doc: "The seed of its random choices.",
	},
	{
		name: "expected_coverage",
		is: mapping{
			begin:  func(d *draft) { d.p.Calibration.ExpectedCoverage = &Interval{High: 1} },
			fields: intervalFields(func(d *draft) *Interval { return d.p.Calibration.ExpectedCoverage }),
		},
		doc: "The share of inputs that is retained, as estimated on inputs that the rule was not chosen on, with its 95% " +
			"interval.",
	},
	{
		name: "expected_critical_fnr",
		is: mapping{
			begin:  func(d *draft) { d.p.Calibration.ExpectedCriticalFNR = &Interval{High: 1} },
			fields: intervalFields(func(d *draft) *Interval { return d.p.Calibration.ExpectedCriticalFNR }),
		},
		doc: "The share of critical inputs, among those retained, that is called safe, in the same way.",
	},
	{
		name: "certificate",
		is: mapping{begin: func(d *draft) { d.p.Calibration.Certificate = &Certificate{} }, fields: []field{
			{
				name: "kind", required: true,
				is: choice[CertificateKind]{[]CertificateKind{LearnThenTest, ConformalRiskControl},
					func(d *draft, k CertificateKind) { d.p.Calibration.Certificate.Kind = k }},
				doc: "The method that certified: learn-then-test bounds the critical FNR among the retained with some " +
					"confidence, conformal-risk-control the mean share of critical inputs that is missed.",
			},
			{
				name: "target", required: true,
				is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Calibration.Certificate.Target = x }},
				doc: "The share that is not exceeded, between 0 and 1.",
			},
			{
				name: "confidence", standardWords: "none; **required** by learn-then-test",
				is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Calibration.Certificate.Confidence = x }},
				doc: "With what probability it holds. Not for conformal-risk-control.",
			},
			{
				name: "cases",
				is:   whole{1, maxCount, func(d *draft, n int) { d.p.Calibration.Certificate.Cases = n }},
				doc:  "The critical cases that it rests on: learn-then-test, those retained; conformal-risk-control, all.",
			},
			{
				name: "misses",
				is:   whole{0, maxCount, func(d *draft, n int) { d.p.Calibration.Certificate.Misses = n }},
				doc:  "How many of the cases were missed.",
			},
			{
				name: "p_value", standardWords: "none",
				is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Calibration.Certificate.PValue = x }},
				doc: "The chance of so few misses if the target were exceeded. Not for conformal-risk-control.",
			},
			{
				name: "statement",
				is:   text{most: maxSentence, set: func(d *draft, s string) { d.p.Calibration.Certificate.Statement = s }},
				doc:  "The certificate in one plain sentence.",
			},
		}},
		doc: "What is guaranteed for inputs drawn as those of the recording were.",
	},
	{
		name: "reference", standardWords: "none: drift is not looked for",
		is: mapping{begin: func(d *draft) { d.p.Calibration.Reference = &drift.Reference{} }, fields: []field{
			{
				name: "inputs", required: true,
				is:  whole{1, maxCount, func(d *draft, n int) { d.p.Calibration.Reference.Inputs = n }},
				doc: "How many inputs it is of.",
			},
			{
				name: "classes", required: true,
				is: mappings{
					begin: func(d *draft, v strictyaml.Value) { d.references = append(d.references, reference{at: v}) },
					fields: []field{
						{
							name: "class", required: true,
							is:  name{func(d *draft, n named) { d.lastReference().class = n }},
							doc: "The class.",
						},
						{
							name: "predicted", required: true,
							is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.lastReference().is.Predicted = x }},
							doc: "The share of the inputs for which it was predicted.",
						},
						{
							name: "epistemic", required: true,
							is:  quantiles{func(d *draft, q drift.Quantiles) { d.lastReference().is.Epistemic = q }},
							doc: "The quantiles of its C_k, in nats: of the levels 0, 1/64, 2/64, up to 1.",
						},
						{
							name: "skewness", required: true,
							is:  quantiles{func(d *draft, q drift.Quantiles) { d.lastReference().is.Skewness = q }},
							doc: "The quantiles of its skewness ratio, of the same levels.",
						},
					},
				},
				doc: "The classes that are looked at, each once.",
			},
		}},
		doc: "What the calibration saw of each class. The daemon tells how far what it sees has moved away from it.",
	},
	{
		name: "earlier_attempt",
		is:   text{most: maxSentence, set: func(d *draft, s string) { d.p.Calibration.EarlierAttempt = s }},
		doc:  "Which certificate was sought on the same recording before: a further one would be void.",
	},
}

func intervalFields(of func(*draft) *Interval) []field {
	share := strictyaml.Between(0, 1)
	return []field{
		{
			name: "value", required: true,
			is:  number{share, func(d *draft, x float64) { of(d).Value = x }},
			doc: "The share.",
		},
		{
			name: "low", standardWords: "`0`",
			is:  number{share, func(d *draft, x float64) { of(d).Low = x }},
			doc: "The lower end of its interval.",
		},
		{
			name: "high", standardWords: "`1`",
			is:  number{share, func(d *draft, x float64) { of(d).High = x }},
			doc: "The upper end.",
		},
	}
}

// maxCount bounds the inputs of a recording.
const maxCount = math.MaxInt32

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
