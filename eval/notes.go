package eval

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Bounds under which a note is made.
const (
	fewCritical = 30 // critical inputs
	fewRetained = 10 // critical inputs that are retained
	muchTied    = 20 // a key that one input in so many shares
)

// notes adds what a reader must know before relying on the report.
func (e *evaluation) notes() {
	e.report.Notes = []string{}
	e.notesOnGroups()
	e.notesOnLabels()
	e.notesOnClasses()
	e.notesOnCritical()
	e.notesOnScores()
	e.notesOnApproximation()
}

// note adds a note to the report.
func (e *evaluation) note(format string, args ...any) {
	e.report.Notes = append(e.report.Notes, fmt.Sprintf(format, args...))
}

// notesOnGroups says what groups change.
func (e *evaluation) notesOnGroups() {
	if e.groups == nil {
		return
	}
	most, critical := 0, 0
	for _, members := range e.groups.members {
		most = max(most, len(members))
		critical += index(slices.ContainsFunc(members, func(i int32) bool { return e.isCritical(int(i)) }))
	}
	e.note("The %d inputs come in %d groups of at most %d, %d of them with critical inputs: resamples draw groups, and intervals and tests "+
		"count groups.", e.t.Inputs, len(e.groups.members), most, critical)
	if critical > 0 && critical < fewCritical {
		e.note("Groups with critical inputs: only %d, so that critical figures are rough, as their intervals show.", critical)
	}
}

func (e *evaluation) notesOnClasses() {
	var without, never []int
	for k := range e.t.K {
		switch {
		case e.counted.support[k] == 0:
			without = append(without, k)
		case e.counted.predicted[k] == 0:
			never = append(never, k)
		}
	}
	if len(without) > 0 {
		e.note("No input is of %s: recall is n/a there, and precision and F1 too where no input is predicted so.", e.names(without))
	}
	if len(never) > 0 {
		e.note("No input is predicted as %s, though there are inputs of it: precision is n/a and F1 is 0 there.", e.names(never))
	}
	if e.t.K > maxMatrixClasses {
		e.note("Tables of class by class are left out: %d classes are more than %d.", e.t.K, maxMatrixClasses)
	}
}

// notesOnLabels warns of labels that the predictions contradict, as labels of other inputs or in
// another order of classes do.
func (e *evaluation) notesOnLabels() {
	s := e.report.Summary
	if chance := e.counted.chance(); s.Accuracy < chance {
		e.note("The model is worse than chance by these labels: %.1f%% are right, and %.1f%% would be if labels and predictions "+
			"were independent. Are the labels of these inputs, in this order, and the classes in the order of the passes?",
			100*s.Accuracy, 100*chance)
	}
	found, others := s.Critical-s.Missed, s.Inputs-s.Critical
	falsely := int(s.WithoutDeferral.FalseCalls)
	if s.Critical > 0 && others > 0 && falsely > 0 && share(found, s.Critical) < share(falsely, others) {
		e.note("The model calls inputs critical worse than by chance: %d of %d critical inputs (%.1f%%), and %d of the %d others "+
			"(%.1f%%). Are the critical classes the right ones?", found, s.Critical, 100*share(found, s.Critical), falsely, others,
			100*share(falsely, others))
	}
}

func (e *evaluation) notesOnCritical() {
	s := e.report.Summary
	switch {
	case len(e.t.Spec.Critical) == 0:
		e.note("No critical classes were given: critical figures are n/a, and what needs such classes is left out.")
		return
	case s.Critical == 0:
		e.note("No input is of a critical class: critical figures are n/a.")
		return
	case s.Critical < fewCritical:
		e.note("Only %d inputs are of a critical class: critical figures are rough, as their intervals show.", s.Critical)
	}
	if from := e.wobbles(); from > 0 {
		e.note("Below %.0f%% coverage too few critical inputs are left for the paper's critical FNR and AUSC to mean anything.", 100*from)
	}
}

// wobbles returns the highest coverage at which a curve of the paper retains few critical inputs, 0
// where every curve retains enough.
func (e *evaluation) wobbles() (upTo float64) {
	for _, curve := range e.report.Curves.Rows {
		for c, n := range curve.CriticalRetained {
			if n < fewRetained && !beyondPaper(curve.Name) {
				upTo = max(upTo, e.report.Curves.Coverage[c])
			}
		}
	}
	return upTo
}

func (e *evaluation) notesOnScores() {
	spec := e.t.Spec
	if len(spec.Critical) > 0 && len(spec.Safe) == 0 {
		e.note("No safe classes were given: there is no confusion between safe and critical classes, and no rule of the paper.")
	}
	if len(spec.Critical) > 0 && len(spec.Safe) > 0 && e.t.K == 2 {
		e.note("With two classes the confusion between safe and critical classes is the geometric mean of both C_k: it does not know which of them is critical.")
	}
	var constant, tied []string
	for s, column := range e.t.Scores {
		if column != nil && slices.Min(column) == slices.Max(column) {
			constant = append(constant, decomp.Score(s).String())
		}
	}
	for r, row := range e.report.Policies {
		if row.Scope == policy.AllInputs && e.tied[r] > 1 && e.tied[r]*muchTied >= e.t.Inputs && !slices.Contains(constant, row.Name) {
			tied = append(tied, fmt.Sprintf("%s (%d inputs)", row.Name, e.tied[r]))
		}
	}
	if len(constant) > 0 && e.t.Inputs > 1 {
		e.note("The same value for every input: %s. Such a score orders nothing: its rows are those of a random order.",
			strings.Join(constant, ", "))
	}
	if len(tied) > 0 && e.t.Inputs >= muchTied {
		e.note("Many inputs share one value of %s: where a coverage cuts through them, counts are averages over their order.",
			strings.Join(tied, ", "))
	}
}

func (e *evaluation) notesOnApproximation() {
	t, s := e.t, e.report.Summary
	if s.Factor != 1 {
		e.note("With the sample variance of %d passes the sum of contributions carries a factor %d/%d = %.3g over mutual information.",
			t.Passes, t.Passes, t.Passes-1, s.Factor)
	}
	if t.Spec.Kind != decomp.Dirichlet {
		if limit := decomp.SkewnessCap(t.Passes, t.Spec.Variance); limit <= e.o.Reliability {
			e.note("%d passes cannot show a skewness above %.3g, and the reliability threshold is %v: "+
				"every class is called reliable whatever it does, and the paper's rule never falls back.", t.Passes, limit, e.o.Reliability)
		}
	}
	if s.Degenerate > 0 {
		e.note("The passes hardly differ in %d of %d inputs (in %d of them they are one-hot): uncertainty is absent there, not zero.",
			s.Degenerate, s.Inputs, s.Saturated)
	}
	if e.o.Bootstrap == 0 {
		e.note("No resamples were drawn: there are no intervals.")
	}
}

// names lists the first classes by name.
func (e *evaluation) names(classes []int) string {
	const most = 8
	if len(classes) == 0 {
		return "none"
	}
	var names []string
	for _, k := range classes[:min(len(classes), most)] {
		names = append(names, e.o.Classes[k])
	}
	list := strings.Join(names, ", ")
	if more := len(classes) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
