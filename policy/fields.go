package policy

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/monitor/drift"
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

// DefaultReliabilityThreshold is the paper's value.
const DefaultReliabilityThreshold = 0.3

// DefaultSumTolerance accepts rows that were rounded to half precision.
const DefaultSumTolerance = 1e-3

// DefaultTensor names the tensor that has the passes.
const DefaultTensor = "passes"

// defaultTopClasses applies to models that have as many classes.
const defaultTopClasses = 10

// field is a row of the table of fields. Decoding, checking, writing, the JSON schema and
// docs/policy-fields.md know of a field only what stands here.
type field struct {
	name     string
	required bool
	// standard is the default. standardWords states it in words if it depends on other fields; the
	// schema then has none.
	standard      any
	standardWords string
	is            shape
	doc           string
	// spelled makes Marshal write a field that has its default. beside, if it is not nil, reports
	// whether Marshal writes the field, given the others.
	spelled bool
	beside  func(*builder) bool
}

// modelsField is the one field of a policy file.
const modelsField = "models"

// modelFields is the table: the fields of a model. A mapping has its fields in its shape.
var modelFields = []field{
	{
		name: "name", required: true,
		is: text{pattern: namePattern, at: func(b *builder) *string { return &b.Name }},
		doc: "The model's name: what clients call it, a metric label, and part of URLs. Letters, digits, dot, dash " +
			"and underscore, at most 128, the first a letter or digit. No two models share one.",
	},
	{
		name: "version", standard: "",
		is:  text{at: func(b *builder) *string { return &b.Version }},
		doc: "Your own text for this state of the policy. It goes with every decision and is not part of the hash.",
	},
	{
		name: "classes", required: true,
		is: names{least: 2, most: MaxClasses, at: func(b *builder) *[]string { return &b.Classes }},
		doc: "The model's classes in the order of its outputs, each letter by letter as written: " +
			"[no, yes, on] are three texts.",
	},
	{
		name: "critical", standardWords: "none",
		is:  names{most: MaxClasses, at: func(b *builder) *[]string { return &b.Critical }},
		doc: "The classes that must not be missed. They may be left out when no score, gate or scope in use needs them.",
	},
	{
		name: "safe", standardWords: "the classes that are not critical",
		is:  names{most: MaxClasses, at: func(b *builder) *[]string { return &b.Safe }},
		doc: "The classes whose confusion with critical ones counts in cbec. No class is both.",
	},
	{
		name: "kind", standard: Probabilities, spelled: true,
		is: choice[Kind]{[]Kind{Probabilities, Logits, Dirichlet}, func(b *builder) *Kind { return &b.Kind }},
		doc: "What a row is: probabilities that sum to one, logits whose softmax is then computed in float64, or the " +
			"one row of positive concentrations of an evidential model.",
	},
	{
		name: "passes",
		is: mapping{flow: true, fields: []field{
			{
				name: "fewest", standardWords: "the fewest that the gate can do with, at least 2",
				is: whole{1, MaxPasses, func(b *builder) *int { return &b.FewestPasses }},
				doc: "An input that ends with fewer passes is an error. At least 2; with a gate that reads skewness, so many " +
					"that skewness can exceed the reliability threshold. Dirichlet: 1.",
			},
			{
				name: "expected", standardWords: "none",
				is: whole{1, MaxPasses, func(b *builder) *int { return &b.ExpectedPasses }},
				doc: "An input is answered when it has this many passes. Without it, only when its caller says that it is " +
					"complete. Dirichlet: 1.",
			},
		}},
		doc: "How many passes an input has.",
	},
	{
		name: "sum_tolerance", standard: DefaultSumTolerance,
		is: number{within: strictyaml.Between(1e-7, 0.1), at: func(b *builder) *float64 { return &b.SumTolerance }},
		doc: "How far the sum of a row of probabilities may be from 1, and a value outside of 0 to 1, before the row is " +
			"refused. Values within it are clamped, and rows are never renormalised. Correct rounding alone costs up to 6e-8 in float32, 5e-4 in float16 and 4e-3 in bfloat16; what " +
			"comes as FP16 or BF16 by the Open Inference Protocol is allowed that rounding on top.",
	},
	{
		name: "tensor", standard: DefaultTensor,
		is: text{pattern: tensorPattern, at: func(b *builder) *string { return &b.Tensor }},
		doc: "The name of the tensor that has the passes, in requests by the Open Inference Protocol: the output of " +
			"your classifier, where ckd gets its answer as it is. It is not part of the hash.",
	},
	{
		name: "variance", standard: Sample, spelled: true,
		is: choice[Variance]{[]Variance{Sample, Population}, func(b *builder) *Variance { return &b.Variance }},
		doc: "What sums of squares are divided by: sample by passes - 1, population by passes, as the authors' own " +
			"code does. No meaning for dirichlet.",
	},
	{
		name: "reliability_threshold", standard: DefaultReliabilityThreshold, spelled: true,
		is:  number{within: strictyaml.Above(0), at: func(b *builder) *float64 { return &b.ReliabilityThreshold }},
		doc: "The skewness ratio above which C_k of a class is not trusted. It depends on the task.",
	},
	{
		name: "gate", standardWords: "any-critical; always for dirichlet",
		is: choice[Gate]{[]Gate{AnyCritical, DecidingClass, Always, Never}, func(b *builder) *Gate { return &b.Gate }},
		doc: "When the fallback score decides: when any critical class is above the reliability threshold, when the " +
			"class with the largest critical C_k is, always, or never.",
	},
	{
		name: "scope", standard: AllInputs, spelled: true,
		is: choice[Scope]{[]Scope{AllInputs, PredictedSafe}, func(b *builder) *Scope { return &b.Scope }},
		doc: "Which inputs may be deferred: all, or only those that are not predicted critical already " +
			"(predicted-safe).",
	},
	{
		name: "primary",
		is: mapping{flow: true, fields: ruleFields(CCritMax, "decides unless the gate hands the input to the fallback",
			func(b *builder) *Rule { return &b.Primary })},
		doc: "The score that decides while C_k is trusted.",
	},
	{
		name: "fallback",
		is: mapping{flow: true, fields: ruleFields(CBEC, "decides where the gate says so",
			func(b *builder) *Rule { return &b.Fallback })},
		doc: "The score that decides in its place.",
	},
	{
		name: "pair_weights", standardWords: "every pair weighs 1",
		is: mappings{
			count: func(b *builder) int { return len(b.PairWeights) },
			add:   func(b *builder, _ string) { b.PairWeights = append(b.PairWeights, DraftPairWeight{}) },
			flow:  true,
			fields: []field{
				{
					name: "safe", required: true,
					is:  name{func(b *builder) *string { return &b.PairWeights[b.item].Safe }},
					doc: "The safe class of the pair.",
				},
				{
					name: "critical", required: true,
					is:  name{func(b *builder) *string { return &b.PairWeights[b.item].Critical }},
					doc: "The critical class of the pair.",
				},
				{
					name: "weight", required: true,
					is:  number{within: strictyaml.AtLeast(0), at: func(b *builder) *float64 { return &b.PairWeights[b.item].Weight }},
					doc: "How much the pair counts in cbec.",
				},
			},
		},
		doc: "Pairs of a safe and a critical class that count more or less than others in cbec.",
	},
	{
		name: "pairs", standard: SafeCriticalPairs,
		is: choice[Pairs]{[]Pairs{SafeCriticalPairs, AllPairs}, func(b *builder) *Pairs { return &b.Pairs }},
		doc: fmt.Sprintf("Which pairs of classes are reported; all only up to %d classes. No score depends on it.",
			MaxClassesForAllPairs),
	},
	{
		name: "top_classes", standardWords: fmt.Sprintf("%d, or all classes where there are fewer", defaultTopClasses),
		is:  whole{1, MaxClasses, func(b *builder) *int { return &b.TopClasses }},
		doc: "How many of the most probable classes the truncated sum of C_k takes. No score depends on it.",
	},
	{
		name: "degenerate", standard: HandleDefer, spelled: true,
		is: choice[Handling]{handlings, func(b *builder) *Handling { return &b.Degenerate }},
		doc: "What becomes of an input whose passes hardly differ, or whose softmax was taken twice: its uncertainty is absent, not " +
			"zero. score treats it like any other.",
	},
	{
		name: "saturated", standard: HandleDefer, spelled: true,
		is:  choice[Handling]{handlings, func(b *builder) *Handling { return &b.Saturated }},
		doc: "The same where all passes are one row, one-hot, as a confident model gives them in float32.",
	},
	{
		name: "risk", standardWords: "unknown",
		is: optional(func(b *builder) **Risk { return &b.Risk }, riskFields),
		doc: "How probable it is that an input is truly critical, as ckd calibrate fits it. It is reported for every input, and is " +
			"what score risk compares.",
	},
	{
		name: "guard", standardWords: "none",
		is: inFlow(optional(func(b *builder) **Guard { return &b.Guard }, guardFields)),
		doc: "Which inputs are deferred as unfamiliar, in every scope and whatever class is predicted. p_critical and risk are blind " +
			"to inputs unlike anything learned. A guard finds some of these, not all.",
	},
	{
		name: "calibration", standardWords: "unknown",
		is: optional(func(b *builder) **Calibration { return &b.Calibration }, calibrationFields),
		doc: "Where the thresholds come from, as ckd calibrate writes it. It decides nothing and is not part of the " +
			"hash, but the daemon counts traffic that differs from it.",
	},
	{
		name: "audit", standardWords: "none",
		is: optional(func(b *builder) **Audit { return &b.Audit }, auditFields),
		doc: "Which of the retained inputs a person looks at, so that outcomes can show whether the policy keeps its promise. It is " +
			"not part of the hash.",
	},
	{
		name: "settle", standardWords: "never: all passes decide",
		is: optional(func(b *builder) **EarlyStopping { return &b.EarlyStopping }, earlyStoppingFields),
		doc: "When an input is decided before its last pass, for clients that accept it, as ckd calibrate --settle writes it. It is part " +
			"of the hash.",
	},
}

// calibrationFields are optional, except those that others make no sense without.
var calibrationFields = []field{
	{
		name: "software",
		is:   text{at: func(b *builder) *string { return &b.Calibration.Software }},
		doc:  "What calibrated, with its version.",
	},
	{
		name: "policy_hash",
		is:   text{pattern: sumPattern, at: func(b *builder) *string { return &b.Calibration.PolicyHash }},
		doc:  "The hash of the policy as it was calibrated. A policy with another was changed since.",
	},
	{
		name: "recording",
		is: mapping{fields: []field{
			{
				name: "passes_file",
				is:   text{at: func(b *builder) *string { return &b.Calibration.Recording.PassesFile }},
				doc:  "The file with the passes.",
			},
			{
				name: "passes_sha256",
				is:   text{pattern: sumPattern, at: func(b *builder) *string { return &b.Calibration.Recording.PassesSHA256 }},
				doc:  "Its SHA-256.",
			},
			{
				name: "labels_file",
				is:   text{at: func(b *builder) *string { return &b.Calibration.Recording.LabelsFile }},
				doc:  "The file with the true classes.",
			},
			{
				name: "labels_sha256",
				is:   text{pattern: sumPattern, at: func(b *builder) *string { return &b.Calibration.Recording.LabelsSHA256 }},
				doc:  "Its SHA-256.",
			},
			{
				name: "inputs",
				is:   whole{1, maxCount, func(b *builder) *int { return &b.Calibration.Recording.Inputs }},
				doc:  "How many inputs it has.",
			},
			{
				name:   "critical_inputs",
				is:     whole{0, maxCount, func(b *builder) *int { return &b.Calibration.Recording.CriticalInputs }},
				beside: func(b *builder) bool { r := b.Calibration.Recording; return r.Inputs > 0 || r.CriticalInputs > 0 },
				doc:    "How many of these are critical.",
			},
			{
				name: "passes",
				is:   whole{1, MaxPasses, func(b *builder) *int { return &b.Calibration.Recording.Passes }},
				doc:  "How many passes each of them has. Inputs with another number are counted as a mismatch.",
			},
		}},
		doc: "The labelled passes that it was calibrated on.",
	},
	{
		name: "posterior",
		is:   text{pattern: namePattern, at: func(b *builder) *string { return &b.Calibration.Posterior }},
		doc: "How the passes were sampled, as in mc-dropout, low-rank-vi or ensemble. Streams and requests that state " +
			"another are counted as a mismatch.",
	},
	{
		name: "objective",
		is:   text{at: func(b *builder) *string { return &b.Calibration.Objective }},
		doc:  "What was asked for, as in coverage 0.8.",
	},
	{
		name: "scope",
		is:   choice[Scope]{[]Scope{AllInputs, PredictedSafe}, func(b *builder) *Scope { return &b.Calibration.Scope }},
		doc:  "The scope that it was calibrated for, which is the policy's.",
	},
	{
		name: "seed", standardWords: "`0`",
		is:  seed{func(b *builder) *uint64 { return &b.Calibration.Seed }},
		doc: "The seed of its random choices.",
	},
	{
		name: "expected_coverage",
		is:   interval(func(b *builder) **Interval { return &b.Calibration.ExpectedCoverage }),
		doc: "The share of inputs that is retained, as estimated on inputs that the rule was not chosen on, with its 95% " +
			"interval.",
	},
	{
		name: "expected_critical_miss_rate",
		is:   interval(func(b *builder) **Interval { return &b.Calibration.ExpectedCriticalMissRate }),
		doc:  "The share of all critical inputs that is retained and called safe, in the same way.",
	},
	{
		name: "expected_critical_fnr",
		is:   interval(func(b *builder) **Interval { return &b.Calibration.ExpectedCriticalFNR }),
		doc:  "The share of critical inputs, among those retained, that is called safe, in the same way.",
	},
	{
		name: "mean_root_risk", standardWords: "unknown",
		is: number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.MeanRootRisk }},
		doc: "The mean of the square root of the risk over the inputs that were retained and called safe. Audits that follow the risk " +
			"are scaled by it.",
	},
	{
		name: "lines", standardWords: "the certified or, without a certificate, the upper ends of the expected shares",
		is: optional(func(b *builder) **Lines { return &b.Calibration.Lines },
			[]field{
				{
					name: "critical_fnr", standardWords: "none",
					is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.Lines.CriticalFNR }},
					doc: "The share of critical inputs, among those retained, that is called safe: above this the alarm is due.",
				},
				{
					name: "critical_miss_rate", standardWords: "none",
					is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.Lines.CriticalMissRate }},
					doc: "The same of the share of all critical inputs that is retained and called safe.",
				},
				{
					name: "classes",
					is: mappings{
						count: func(b *builder) int { return len(b.Calibration.Lines.Classes) },
						add: func(b *builder, _ string) {
							l := b.Calibration.Lines
							l.Classes = append(l.Classes, ClassLine{})
						},
						flow: true,
						fields: []field{
							{
								name: "class", required: true,
								is:  name{func(b *builder) *string { return &b.classLine().Class }},
								doc: "A critical class.",
							},
							{
								name: "critical_fnr", required: true,
								is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.classLine().CriticalFNR }},
								doc: "The share of the retained inputs that are truly of this class that is called safe.",
							},
						},
					},
					doc: "The same for inputs of one critical class.",
				},
			}),
		doc: "What outcomes are tested against: never an expected share itself, which half of all policies exceed from the first day.",
	},
	{
		name: "certificate",
		is: optional(func(b *builder) **Certificate { return &b.Calibration.Certificate },
			[]field{
				{
					name: "kind", required: true,
					is: choice[CertificateKind]{[]CertificateKind{LearnThenTest, ConformalRiskControl},
						func(b *builder) *CertificateKind { return &b.Calibration.Certificate.Kind }},
					doc: "The method that certified: learn-then-test bounds figures with some confidence, " +
						"conformal-risk-control the critical miss rate on average.",
				},
				{
					name: "bounds", standardWords: "critical-fnr by learn-then-test, else critical-miss-rate",
					is: choice[Figure]{[]Figure{CriticalMissRate, CriticalFNR},
						func(b *builder) *Figure { return &b.Calibration.Certificate.Bounds }},
					doc: "What it bounds: the share that is retained and called safe of all critical inputs (critical-miss-rate) or of " +
						"those that are retained (critical-fnr).",
				},
				{
					name: "class", standardWords: "all critical classes",
					is:  name{func(b *builder) *string { return &b.Calibration.Certificate.Class }},
					doc: "The critical class whose inputs alone are counted.",
				},
				{
					name: "target", required: true,
					is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.Certificate.Target }},
					doc: "The share that is not exceeded, between 0 and 1.",
				},
				{
					name: "confidence", standardWords: "none; **required** by learn-then-test",
					is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.Certificate.Confidence }},
					doc: "With what probability it holds. Not for conformal-risk-control.",
				},
				{
					name: "groups", standardWords: "none: all inputs were counted as independent",
					is:  whole{0, maxCount, func(b *builder) *int { return &b.Calibration.Certificate.Groups }},
					doc: "How many groups of inputs, such as patients, it rests on.",
				},
				{
					name: "cases",
					is:   whole{1, maxCount, func(b *builder) *int { return &b.Calibration.Certificate.Cases }},
					doc:  "The critical inputs that it rests on: of critical-fnr those retained, of critical-miss-rate all.",
				},
				{
					name:   "misses",
					is:     whole{0, maxCount, func(b *builder) *int { return &b.Calibration.Certificate.Misses }},
					beside: func(b *builder) bool { return b.Calibration.Certificate.Cases > 0 },
					doc:    "How many of the cases were missed.",
				},
				{
					name: "p_value", standardWords: "none",
					is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.Calibration.Certificate.PValue }},
					doc: "The chance of so few misses if the target were exceeded. Not for conformal-risk-control.",
				},
				{
					name: "further",
					is: mappings{
						count: func(b *builder) int { return len(b.Calibration.Certificate.Further) },
						add: func(b *builder, _ string) {
							c := b.Calibration.Certificate
							c.Further = append(c.Further, CertifiedLimit{})
						},
						flow: true,
						fields: []field{
							{
								name: "bounds", required: true,
								is:  choice[Figure]{[]Figure{CriticalMissRate, CriticalFNR}, func(b *builder) *Figure { return &b.limit().Bounds }},
								doc: "What it bounds.",
							},
							{
								name: "class", standardWords: "all critical classes",
								is:  name{func(b *builder) *string { return &b.limit().Class }},
								doc: "The critical class whose inputs alone are counted.",
							},
							{
								name: "target", required: true,
								is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.limit().Target }},
								doc: "The share that is not exceeded, between 0 and 1.",
							},
							{
								name: "cases",
								is:   whole{0, maxCount, func(b *builder) *int { return &b.limit().Cases }},
								doc:  "The critical inputs that it rests on.",
							},
							{
								name: "misses",
								is:   whole{0, maxCount, func(b *builder) *int { return &b.limit().Misses }},
								doc:  "How many of them were missed.",
							},
							{
								name: "p_value", standardWords: "none",
								is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.limit().PValue }},
								doc: "The chance of so few misses if the target were exceeded.",
							},
						},
					},
					doc: "Further shares that it bounds at the same time, with the same confidence for all together.",
				},
				{
					name: "statement",
					is:   text{most: maxSentence, at: func(b *builder) *string { return &b.Calibration.Certificate.Statement }},
					doc:  "The certificate in one plain sentence.",
				},
			}),
		doc: "The guarantee, for inputs drawn as those of the recording were.",
	},
	{
		name: "reference", standardWords: "none: drift is not looked for",
		is: optional(func(b *builder) **drift.Reference { return &b.Calibration.Reference },
			[]field{
				{
					name: "inputs", required: true,
					is:  whole{1, maxCount, func(b *builder) *int { return &b.Calibration.Reference.Inputs }},
					doc: "How many inputs it holds.",
				},
				{
					name: "classes", required: true,
					is: mappings{
						count: func(b *builder) int { return len(b.Calibration.Reference.Classes) },
						add: func(b *builder, _ string) {
							r := b.Calibration.Reference
							r.Classes = append(r.Classes, drift.ClassReference{Class: -1})
						},
						fields: []field{
							{
								name: "class", required: true,
								is:  class{at: func(b *builder) *int { return &b.reference().Class }},
								doc: "The class.",
							},
							{
								name: "predicted", required: true,
								is:  number{within: strictyaml.Between(0, 1), at: func(b *builder) *float64 { return &b.reference().Predicted }},
								doc: "The share of the inputs for which it was predicted.",
							},
							{
								name: "epistemic", required: true,
								is:  quantiles(func(b *builder) *drift.Quantiles { return &b.reference().Epistemic }),
								doc: "The quantiles of its C_k, in nats: of the levels 0, 1/64, 2/64, up to 1.",
							},
							{
								name: "skewness", required: true,
								is:  quantiles(func(b *builder) *drift.Quantiles { return &b.reference().Skewness }),
								doc: "The quantiles of its skewness ratio, of the same levels.",
							},
						},
					},
					doc: "The classes that are compared, each once.",
				},
			}),
		doc: "What the calibration saw of each class. The daemon reports how far live inputs have moved away from it.",
	},
	{
		name: "earlier_attempt",
		is:   text{most: maxSentence, at: func(b *builder) *string { return &b.Calibration.EarlierAttempt }},
		doc:  "Which certificate was sought on the same recording before: a further one would be void.",
	},
}

// reference returns the entry of calibration.reference.classes that is being read or checked.
func (b *builder) reference() *drift.ClassReference {
	return &b.Calibration.Reference.Classes[b.item]
}

// classLine returns the entry of calibration.lines.classes that is being read or checked.
func (b *builder) classLine() *ClassLine { return &b.Calibration.Lines.Classes[b.item] }

// limit returns the entry of calibration.certificate.further that is being read or checked.
func (b *builder) limit() *CertifiedLimit { return &b.Calibration.Certificate.Further[b.item] }

// interval returns the shape of a share with its interval, which is from 0 to 1 if it is not given.
func interval(at func(*builder) **Interval) mapping {
	share := strictyaml.Between(0, 1)
	known := func(b *builder) bool { return (*at(b)).Known() }
	shape := optional(at, []field{
		{
			name: "value", required: true,
			is:  number{within: share, at: func(b *builder) *float64 { return &(*at(b)).Value }},
			doc: "The share.",
		},
		{
			name: "low", standardWords: "`0`", beside: known,
			is:  number{within: share, at: func(b *builder) *float64 { return &(*at(b)).Low }},
			doc: "The lower end of its interval.",
		},
		{
			name: "high", standardWords: "`1`", beside: known,
			is:  number{within: share, at: func(b *builder) *float64 { return &(*at(b)).High }},
			doc: "The upper end.",
		},
	})
	shape.begin = func(b *builder) { *at(b) = &Interval{High: 1} }
	return inFlow(shape)
}

// maxSeed bounds seeds, which files hold as whole numbers.
const maxSeed = math.MaxInt

// maxCount bounds the inputs of a recording.
const maxCount = math.MaxInt32

var handlings = []Handling{HandleDefer, HandleRetain, HandleByScore}

func ruleFields(standard Score, when string, of func(*builder) *Rule) []field {
	return []field{
		{
			name: "score", standard: standard, spelled: true,
			is:  choice[Score]{RuleScores(), func(b *builder) *Score { return &of(b).Score }},
			doc: "The score that " + when + ".",
		},
		{
			name: "threshold", standardWords: "none", beside: func(b *builder) bool { return of(b).HasThreshold },
			is: number{
				within: strictyaml.AtLeast(0),
				begin:  func(b *builder) { of(b).HasThreshold = true },
				at:     func(b *builder) *float64 { return &of(b).Threshold },
			},
			doc: "The input is retained exactly when this score is at or under it. A policy gives one for each score " +
				"that its gate can reach, or none at all and observes.",
		},
	}
}
