package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/settle"
)

// MaxSettlePasses bounds the passes of a policy whose inputs are settled early: a rule
// has numbers for each of them in memory, however few a file gives.
const MaxSettlePasses = 1000

// Settle is when inputs are settled before their last pass, and what is guaranteed
// of it.
type Settle struct {
	// PolicyHash is the hash of the policy without this block: what the rule was
	// learned and certified for.
	PolicyHash string
	// Order in which the passes must come.
	Order PassOrder
	// Rule says when; where it is in force its passes are the policy's expected ones.
	Rule settle.Rule
	// Certificate of the rule, for inputs drawn as those were that it was certified on.
	Certificate SettleCertificate
	// MeanPasses that were used of the inputs that it was certified on.
	MeanPasses float64
	// HalvesDiffer is the share of them that one half of their passes decides otherwise
	// than the other does: what "the same decision" is worth. Nil where that is not told.
	HalvesDiffer *float64

	// Software that learned it, with its version; from which passes; the seed. Zero
	// values are what is not told.
	Software                 string
	PassesFile, PassesSHA256 string
	Inputs                   int // learned from
	Seed                     uint64
}

// SettleCertificate bounds what the rule decides otherwise than all passes do.
type SettleCertificate struct {
	// Disagreement is the share of inputs, in (0,1), that is not exceeded of those with
	// another action, or retained both times with predicted classes of which one is
	// critical; and Confidence, in (0,1), with what probability it is not. Each share
	// released has the same confidence, of its own.
	Disagreement, Confidence float64
	// Inputs it rests on, and the Disagreements among them.
	Inputs, Disagreements int
	// Released is, of the inputs that all passes defer, those that the rule retains;
	// CriticalReleased the same of critical ones, nil where that is not certified.
	Released         ReleasedShare
	CriticalReleased *ReleasedShare
}

// ReleasedShare is a share of deferred inputs, which is not exceeded, and what it rests on.
type ReleasedShare struct {
	AtMost             float64 // in (0,1]; 1 says nothing
	Deferred, Released int
}

// looseRelease is a share of the deferred inputs that is worth a warning if so many might
// be retained: a rule that defers next to nothing can be certified where few inputs are
// deferred.
const looseRelease = 0.5

// PassOrder says in which order passes come.
type PassOrder string

// The orders.
const (
	AnyOrder     PassOrder = "any"      // draws of one posterior
	MembersOrder PassOrder = "recorded" // members of an ensemble: the order of the recording
)

// SettleRule is the rule by which inputs are settled early; nil for none. A rule that
// was learned for another policy than this has become is none. It takes a hash to tell:
// ask once for a policy.
func (p *Policy) SettleRule() *settle.Rule {
	if p.Settle == nil || p.settledForAnother() {
		return nil
	}
	return &p.Settle.Rule
}

// HashWithoutSettle is what the hash would be without a rule to settle by.
func (p *Policy) HashWithoutSettle() string { return sum(p.meaning()) }

func (p *Policy) settledForAnother() bool { return p.Settle.PolicyHash != p.HashWithoutSettle() }

// Unsettleable says why no rule can settle inputs of the policy early; empty where
// one can.
func (p *Policy) Unsettleable() string {
	switch {
	case p.Kind == Dirichlet:
		return fmt.Sprintf("kind is %s, whose inputs are one row", Dirichlet)
	case p.Observes():
		return "the policy has no thresholds, so that there is no decision to be settled"
	case p.ExpectedPasses == 0:
		return "passes.expected is not given, so that there is no full decision"
	case p.ExpectedPasses > MaxSettlePasses:
		return fmt.Sprintf("passes.expected is %d, above %d, the most that are settled early", p.ExpectedPasses, MaxSettlePasses)
	case p.ExpectedPasses <= p.FewestPasses:
		return fmt.Sprintf("passes.expected is %d, as passes.fewest is: there is no pass less to decide on", p.ExpectedPasses)
	}
	for _, r := range p.reachable() {
		if r.Score == OvAMI {
			return fmt.Sprintf("%s.score is %s, which cannot be followed pass by pass", r.field, OvAMI)
		}
	}
	return ""
}

// settleFields are those of the block settle.
var settleFields = []field{
	{
		name: "policy_hash", required: true,
		is: text{pattern: sumPattern, set: func(d *draft, s string) { d.p.Settle.PolicyHash = s }},
		doc: "The hash of the policy without this block. Where that is another by now, since a threshold, the gate or any other field " +
			"was changed, the rule is not in force: all passes decide, and `ckd check` and the daemon's log say so.",
	},
	{
		name: "order", standard: AnyOrder,
		is:  choice[PassOrder]{[]PassOrder{AnyOrder, MembersOrder}, func(d *draft, o PassOrder) { d.p.Settle.Order = o }},
		doc: "The order in which passes must come: any, as draws of one posterior may, or as recorded, as the members of an ensemble must.",
	},
	{
		name: "software",
		is:   text{set: func(d *draft, s string) { d.p.Settle.Software = s }},
		doc:  "What learned the rule, with its version.",
	},
	{
		name: "passes_file",
		is:   text{set: func(d *draft, s string) { d.p.Settle.PassesFile = s }},
		doc:  "The file with the passes that it was learned from and certified on.",
	},
	{
		name: "passes_sha256",
		is:   text{pattern: sumPattern, set: func(d *draft, s string) { d.p.Settle.PassesSHA256 = s }},
		doc:  "Its SHA-256.",
	},
	{
		name: "inputs",
		is:   whole{1, maxCount, func(d *draft, n int) { d.p.Settle.Inputs = n }},
		doc:  "How many inputs it was learned from. It was certified on others.",
	},
	{
		name: "seed", standardWords: "`0`",
		is:  whole{0, math.MaxInt, func(d *draft, n int) { d.p.Settle.Seed = uint64(n) }},
		doc: "The seed of the random choices.",
	},
	{
		name: "mean_passes",
		is:   number{strictyaml.AtLeast(0), func(d *draft, x float64) { d.p.Settle.MeanPasses = x }},
		doc:  "The mean of the passes used, of the inputs that it was certified on.",
	},
	{
		name: "halves_differ", standardWords: "not told",
		is: number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Settle.HalvesDiffer = &x }},
		doc: "The share of them that one half of the passes decides otherwise than the other half does: what the same decision is " +
			"worth.",
	},
	{
		name: "certificate", required: true,
		is: mapping{fields: []field{
			{
				name: "disagreement", required: true,
				is: number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Settle.Certificate.Disagreement = x }},
				doc: "The share of inputs that is not exceeded of those that are decided otherwise than by all passes: with another action, " +
					"or retained both times, but predicted critical only once. Above 0 and below 1.",
			},
			{
				name: "confidence", required: true,
				is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { d.p.Settle.Certificate.Confidence = x }},
				doc: "With what probability each of these shares is not exceeded, above 0 and below 1.",
			},
			{
				name: "inputs",
				is:   whole{1, maxCount, func(d *draft, n int) { d.p.Settle.Certificate.Inputs = n }},
				doc:  "How many inputs it rests on.",
			},
			{
				name: "disagreements",
				is:   whole{0, maxCount, func(d *draft, n int) { d.p.Settle.Certificate.Disagreements = n }},
				doc:  "How many of them were decided otherwise.",
			},
			{
				name: "released", required: true,
				is:  mapping{fields: releasedFields(func(d *draft) *ReleasedShare { return &d.p.Settle.Certificate.Released })},
				doc: "Of the inputs that all passes defer, those that are retained instead.",
			},
			{
				name: "critical_released", standardWords: "not certified",
				is: mapping{
					begin:  func(d *draft) { d.p.Settle.Certificate.CriticalReleased = &ReleasedShare{} },
					fields: releasedFields(func(d *draft) *ReleasedShare { return d.p.Settle.Certificate.CriticalReleased }),
				},
				doc: "The same of critical inputs.",
			},
		}},
		doc: "What is guaranteed for inputs drawn as those were that the rule was certified on.",
	},
	{
		name: "patience", standardWords: "`0`",
		is: number{strictyaml.Between(0, settle.Never), func(d *draft, x float64) { d.p.Settle.Rule.Patience = x }},
		doc: "How far above their boundary the log-odds of an input double the passes that it has when the rule looks at it again; " +
			"half as far adds half as many. With 0 it looks after every pass.",
	},
	{
		name: "steps", required: true,
		is: mappings{
			begin: func(d *draft, v strictyaml.Value) { d.steps = append(d.steps, newStep(v)) },
			fields: []field{
				{
					name: "passes", required: true,
					is: whole{2, MaxSettlePasses - 1, func(d *draft, n int) { d.lastStep().passes = n }},
					doc: "The passes that the input has: at least passes.fewest, fewer than passes.expected, more than at the step before. " +
						"After numbers of passes that are left out nothing is settled.",
				},
				{
					name: "retain", standardWords: "never",
					is:  mapping{fields: sideFields(func(d *draft) *settle.Side { return &d.lastStep().is.Retain })},
					doc: "When an input that would be retained is settled.",
				},
				{
					name: "defer", standardWords: "never",
					is:  mapping{fields: sideFields(func(d *draft) *settle.Side { return &d.lastStep().is.Defer })},
					doc: "When an input that would be deferred is settled.",
				},
			},
		},
		doc: "The rule, for each number of passes after which something may be settled.",
	},
}

func sideFields(of func(*draft) *settle.Side) []field {
	return []field{
		{
			name: "at_most", required: true,
			is:  number{within(settle.Never), func(d *draft, x float64) { of(d).AtMost = x }},
			doc: "The log-odds, of being overturned by the passes to come, up to which it is settled.",
		},
		{
			name: "coefficients", required: true,
			is:  coefficients{func(d *draft, c [settle.Terms]float64) { of(d).Coefficients = c }},
			doc: "The quadratic form of five statistics that gives these log-odds: see docs/settle.md.",
		},
	}
}

func releasedFields(of func(*draft) *ReleasedShare) []field {
	return []field{
		{
			name: "at_most", required: true,
			is:  number{strictyaml.Between(0, 1), func(d *draft, x float64) { of(d).AtMost = x }},
			doc: "The share that is not exceeded.",
		},
		{
			name: "deferred",
			is:   whole{0, maxCount, func(d *draft, n int) { of(d).Deferred = n }},
			doc:  "How many of the inputs that it rests on are deferred by all passes.",
		},
		{
			name: "released",
			is:   whole{0, maxCount, func(d *draft, n int) { of(d).Released = n }},
			doc:  "How many of these were retained.",
		},
	}
}

// within is the numbers from -x to x.
func within(x float64) strictyaml.Range { return strictyaml.Between(-x, x) }

// coefficients is the list of numbers of a step.
type coefficients struct {
	set func(*draft, [settle.Terms]float64)
}

func (coefficients) words() string {
	return fmt.Sprintf("a list of %d numbers from -1e6 to 1e6", settle.Terms)
}

func (t coefficients) read(d *draft, v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	if len(items) != settle.Terms {
		v.Fault("expected %s, found %d", t.words(), len(items))
		return
	}
	var c [settle.Terms]float64
	for i, item := range items {
		if c[i], ok = item.Float(within(settle.Never)); !ok {
			return
		}
	}
	t.set(d, c)
}

// step is an entry of settle.steps.
type step struct {
	at     strictyaml.Value
	passes int
	is     settle.Step
}

func newStep(at strictyaml.Value) step { return step{at: at, is: settle.NoStep()} }

func (d *draft) lastStep() *step { return &d.steps[len(d.steps)-1] }

// resolveSettle makes the steps a rule, and applies the rules of the block: that it is
// complete and, where it is for this policy as it is now, that it fits. A block for
// another is no fault, as thresholds may be changed at any time.
func (d *draft) resolveSettle() {
	s := d.p.Settle
	if s == nil {
		return
	}
	d.checkSettleCertificate()
	if !d.checkSteps() {
		return
	}
	first, passes := d.steps[0].passes, d.lastStep().passes+1
	if !d.p.settledForAnother() {
		if !d.checkSettleFits() {
			return
		}
		passes = d.p.ExpectedPasses
	}
	s.Rule.Passes, s.Rule.Fewest, s.Rule.Steps = passes, first, make([]settle.Step, passes-first)
	for i := range s.Rule.Steps {
		s.Rule.Steps[i] = settle.NoStep()
	}
	for _, step := range d.steps {
		s.Rule.Steps[step.passes-first] = meant(step.is)
	}
}

// checkSteps reports whether the steps alone can be a rule.
func (d *draft) checkSteps() bool {
	if len(d.steps) == 0 {
		steps := d.place("settle.steps")
		if _, isList := steps.Under("", func(strictyaml.Fault) {}).List(); isList {
			d.fault("settle.steps", "empty, expected at least one step")
		}
		return false
	}
	last := 0
	for _, step := range d.steps {
		switch {
		case step.passes == 0:
			return false // has a fault of its own
		case step.passes <= last:
			d.fault(step.at.Path()+".passes", "expected more than at the step before, %d, found %d", last, step.passes)
			return false
		}
		last = step.passes
	}
	return true
}

// checkSettleFits reports whether the block is for a policy such as this.
func (d *draft) checkSettleFits() bool {
	p, first, last := d.p, d.steps[0], d.lastStep()
	if why := p.Unsettleable(); why != "" {
		d.fault("settle", "expected none: %s", why)
		return false
	}
	if most := float64(p.ExpectedPasses); p.Settle.MeanPasses > most {
		d.fault("settle.mean_passes", "expected at most %v, the passes of the full decision, found %v", most, p.Settle.MeanPasses)
	}
	switch {
	case first.passes < p.FewestPasses:
		d.fault(first.at.Path()+".passes", "expected at least %d, the fewest passes that the policy accepts, found %d",
			p.FewestPasses, first.passes)
	case last.passes >= p.ExpectedPasses:
		d.fault(last.at.Path()+".passes", "expected fewer than %d, those of the full decision, found %d", p.ExpectedPasses, last.passes)
	default:
		return true
	}
	return false
}

// meant is a step without what has no effect: the log-odds where no boundary is.
func meant(s settle.Step) settle.Step {
	for _, side := range []*settle.Side{&s.Retain, &s.Defer} {
		if side.AtMost == -settle.Never {
			side.Coefficients = [settle.Terms]float64{}
		}
	}
	return s
}

func (d *draft) checkSettleCertificate() {
	const path = "settle.certificate"
	c := d.p.Settle.Certificate
	for _, share := range []struct {
		field string
		value float64
	}{{"disagreement", c.Disagreement}, {"confidence", c.Confidence}} {
		if at := path + "." + share.field; d.has(at) && d.sound(at) && (share.value == 0 || share.value == 1) {
			d.fault(at, "expected a share above 0 and below 1, found %v", share.value)
		}
	}
	if c.Disagreements > c.Inputs && d.sound(path+".inputs", path+".disagreements") {
		d.fault(path+".disagreements", "expected at most %d, the number of inputs, found %d", c.Inputs, c.Disagreements)
	}
	released := func(at string, r *ReleasedShare) {
		switch {
		case r == nil || !d.sound(at+".at_most", at+".deferred", at+".released"):
		case d.has(at+".at_most") && r.AtMost == 0:
			d.fault(at+".at_most", "expected a share above 0, found 0")
		case r.Released > r.Deferred:
			d.fault(at+".released", "expected at most %d, those deferred, found %d", r.Deferred, r.Released)
		}
	}
	released(path+".released", &c.Released)
	released(path+".critical_released", c.CriticalReleased)
}

// write is the block as a field of a model.
func (s *Settle) write(w *writer) {
	w.begin("settle")
	w.field("policy_hash", s.PolicyHash)
	w.field("order", s.Order)
	w.given("software", s.Software)
	w.given("passes_file", s.PassesFile)
	w.given("passes_sha256", s.PassesSHA256)
	w.given("inputs", s.Inputs)
	w.given("seed", s.Seed)
	w.given("mean_passes", s.MeanPasses)
	if s.HalvesDiffer != nil {
		w.field("halves_differ", *s.HalvesDiffer)
	}
	c := s.Certificate
	w.begin("certificate")
	w.field("disagreement", c.Disagreement)
	w.field("confidence", c.Confidence)
	if c.Inputs > 0 {
		w.field("inputs", c.Inputs)
		w.field("disagreements", c.Disagreements)
	}
	w.field("released", c.Released.flow())
	if c.CriticalReleased != nil {
		w.field("critical_released", c.CriticalReleased.flow())
	}
	w.end()
	w.given("patience", s.Rule.Patience)
	w.b.WriteString(w.indent + "steps:\n")
	for i, step := range s.Rule.Steps {
		// The first and the last say how far the rule reaches.
		if i == 0 || i == len(s.Rule.Steps)-1 || step.Asks() {
			writeStep(w, s.Rule.Fewest+i, step)
		}
	}
	w.end()
}

func writeStep(w *writer, passes int, step settle.Step) {
	w.b.WriteString(w.indent + "  - passes: " + strconv.Itoa(passes) + "\n")
	w.indent += "    "
	for _, side := range []struct {
		name string
		settle.Side
	}{{"retain", step.Retain}, {"defer", step.Defer}} {
		if side.AtMost == -settle.Never {
			continue
		}
		w.begin(side.name)
		w.field("at_most", side.AtMost)
		list := make(numbers, settle.Terms)
		for i, x := range side.Coefficients {
			list[i] = decimal(x)
		}
		w.field("coefficients", list)
		w.end()
	}
	w.indent = w.indent[4:]
}

func (r ReleasedShare) flow() flow {
	f := flow{{"at_most", r.AtMost}}
	if r.Deferred > 0 {
		f = append(f, entry{"deferred", r.Deferred}, entry{"released", r.Released})
	}
	return f
}

// explainSettle is when inputs are settled, and what is guaranteed of it.
func (p *Policy) explainSettle() []string {
	s, c := p.Settle, p.Settle.Certificate
	if p.settledForAnother() {
		return []string{"Its rule to settle inputs early was learned for another policy than this is now, and is not in force: all " +
			"passes decide."}
	}
	order := "in any order"
	if s.Order == MembersOrder {
		order = "in the order of the ensemble's members"
	}
	when := fmt.Sprintf("For clients that accept it, an input is answered before its %d passes, which come %s, when its decision is settled, "+
		"after %d passes or more", s.Rule.Passes, order, s.Rule.Fewest)
	if s.MeanPasses > 0 {
		when += fmt.Sprintf("; where it was certified, after %.3g on average", s.MeanPasses)
	}
	certified := fmt.Sprintf("With confidence %v, at most %s of the inputs are then decided otherwise than by all passes", c.Confidence,
		percent(c.Disagreement))
	if c.Inputs > 0 {
		certified += fmt.Sprintf(" (%d of %d were)", c.Disagreements, c.Inputs)
	}
	certified += "; " + c.Released.explain("those that all passes defer")
	if c.CriticalReleased != nil {
		certified += ", and " + c.CriticalReleased.explain("the critical ones among them")
	}
	sentences := []string{when + ".", certified + ", for inputs drawn as those it was certified on."}
	if s.HalvesDiffer != nil {
		sentences = append(sentences, fmt.Sprintf("Two halves of the passes decide %s of the inputs differently from each other: so far do "+
			"passes alone move a decision.", percent(*s.HalvesDiffer)))
	}
	return sentences
}

// explain the share of some inputs that all passes defer.
func (r ReleasedShare) explain(of string) string {
	if r.AtMost == 1 {
		return fmt.Sprintf("nothing is certified of how many of %s are retained", of)
	}
	s := fmt.Sprintf("with the same confidence, at most %s of %s are retained", percent(r.AtMost), of)
	if r.Deferred > 0 {
		s += fmt.Sprintf(" (%d of %d were)", r.Released, r.Deferred)
	}
	return s
}

// IsEnsemble reports whether the name of a posterior is of an ensemble, whose passes are a
// fixed list of members: deep-ensemble, ensemble-5.
func IsEnsemble(posterior string) bool {
	return strings.Contains(strings.ToLower(posterior), "ensemble")
}

// warnOfSettle is for policies that have a rule.
func (p *Policy) warnOfSettle(warn warner) {
	c := p.Settle.Certificate
	if p.settledForAnother() {
		warn("settle.policy_hash", "the policy was changed since its rule to settle inputs early was learned (its hash without it is now %s): "+
			"the rule is not in force, and all passes decide; learn another with ckd calibrate --settle", p.HashWithoutSettle())
		return
	}
	const path = "settle.certificate."
	for _, share := range []struct {
		field  string
		k, n   int
		atMost float64
	}{
		{"disagreements", c.Disagreements, c.Inputs, c.Disagreement},
		{"released.released", c.Released.Released, c.Released.Deferred, c.Released.AtMost},
		{"critical_released.released", c.criticalReleased().Released, c.criticalReleased().Deferred, c.criticalReleased().AtMost},
	} {
		if share.n > 0 && !bearsOut(share.k, share.n, share.atMost, c.Confidence) {
			warn(path+share.field, "%d of %d do not bear out a share of at most %v with confidence %v",
				share.k, share.n, share.atMost, c.Confidence)
		}
	}
	if loose := c.Released.AtMost; loose >= looseRelease {
		warn(path+"released.at_most", "up to %.3g of the inputs that all passes defer may be retained instead: learn and certify the rule on "+
			"more of them, or ask that less is decided otherwise", loose)
	}
	if p.Calibration != nil && IsEnsemble(p.Calibration.Posterior) && p.Settle.Order == AnyOrder {
		warn("settle.order", "%s, but the passes are of an ensemble, whose members come in one order", AnyOrder)
	}
}

// criticalReleased is the share of critical inputs; one that says nothing where it is
// not certified.
func (c *SettleCertificate) criticalReleased() ReleasedShare {
	if c.CriticalReleased == nil {
		return ReleasedShare{AtMost: 1}
	}
	return *c.CriticalReleased
}

// bearsOut reports whether k of n certify a share of at most p, above 0: whether k or
// fewer have at most the chance 1-confidence where it is p.
func bearsOut(k, n int, p, confidence float64) bool {
	const rounding = 1e-9
	return p == 1 || binomial.Tail(k, n, p) <= 1-confidence+rounding
}

// meaning of the block that is in force, for the hash.
func (s *Settle) meaning(b []byte) []byte {
	c := s.Certificate
	b = fmt.Appendf(b, "settle %d %d %s %x %x %x\n", s.Rule.Passes, s.Rule.Fewest, s.Order,
		c.Disagreement, c.Confidence, c.Released.AtMost)
	if s.Rule.Patience > 0 {
		b = fmt.Appendf(b, "settle_patience %x\n", s.Rule.Patience)
	}
	for _, step := range s.Rule.Steps {
		step = meant(step)
		for _, side := range []settle.Side{step.Retain, step.Defer} {
			b = fmt.Appendf(b, "settle_step %x", side.AtMost+0) // -0 + 0 is 0
			for _, x := range side.Coefficients {
				b = fmt.Appendf(b, " %x", x+0)
			}
			b = append(b, '\n')
		}
	}
	return b
}
