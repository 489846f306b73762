package promise

import (
	"fmt"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A Line is what a risk of a model is held against.
type Line struct {
	Watch
	Above float64
	// Origin says in words where it comes from, such as "certified".
	Origin string
	// Policy is the hash of the policy that has it; empty where a person raised it for all.
	Policy string `json:",omitempty"`
	Since  time.Time
}

// linesOf returns the lines that a policy has by itself.
func linesOf(t *truth.Terms) []Line {
	var lines []Line
	for _, l := range t.Policy.LinesInForce() {
		for risk, figure := range figures {
			if figure == l.Bounds && l.Above > 0 && l.Above < 1 {
				lines = append(lines, Line{Watch: Watch{Risk: risk, Class: l.Class}, Above: l.Above, Origin: l.Origin(), Policy: t.Policy.Hash})
			}
		}
	}
	return lines
}

// Hear learns the lines of a policy. A line may be lowered by a policy, and not raised: where the policy
// states a higher one than the model was held against before, or none, that one stays. It returns the
// lines that stay so, with what the policy says instead (0 for none), and whether the policy is new.
func (a *Alarms) Hear(t *truth.Terms, now time.Time) (held map[Watch]float64, isNew bool) {
	if slices.Contains(a.heard, t.Policy.Hash) {
		return nil, false
	}
	own := linesOf(t)
	held = make(map[Watch]float64)
	for w, standing := range a.standing() {
		if _, known := w.classIn(t); !known {
			continue
		}
		i := slices.IndexFunc(own, func(l Line) bool { return l.Watch == w })
		switch {
		case i < 0:
			held[w] = 0
			own = append(own, Line{Watch: w, Above: standing.Above, Origin: standing.Origin, Policy: t.Policy.Hash})
		case own[i].Above > standing.Above:
			held[w] = own[i].Above
			own[i].Above, own[i].Origin = standing.Above, standing.Origin
		}
	}
	slices.SortFunc(own, func(a, b Line) int { return a.compare(b.Watch) })
	for _, l := range own {
		l.Since = now.UTC()
		a.lines = append(a.lines, l)
	}
	a.heard = append(a.heard, t.Policy.Hash)
	return held, true
}

// Latest returns the hash of the policy that was heard last; empty for none.
func (a *Alarms) Latest() string {
	if len(a.heard) == 0 {
		return ""
	}
	return a.heard[len(a.heard)-1]
}

// standing returns the line of each watch that was fixed last.
func (a *Alarms) standing() map[Watch]Line {
	last := make(map[Watch]Line)
	for _, l := range a.lines {
		last[l.Watch] = l
	}
	return last
}

// Standing returns the line that was fixed last for a watch, and whether there is one.
func (a *Alarms) Standing(w Watch) (Line, bool) {
	l, some := a.standing()[w]
	return l, some
}

// Raise raises a line of a model, for all policies that were heard, from the next cohort on.
func (a *Alarms) Raise(w Watch, above float64, who string, now time.Time) error {
	old, some := a.Standing(w)
	switch {
	case !some:
		return fmt.Errorf("the %s of the model has no line", w)
	case !(above > old.Above && above < 1):
		return fmt.Errorf("the line of the %s is %v: expected a higher one, below 1 (a policy may lower it)", w, old.Above)
	}
	a.lines = append(a.lines, Line{Watch: w, Above: above, Origin: fmt.Sprintf("stated by %s on %s", who, now.UTC().Format(time.DateOnly)), Since: now.UTC()})
	return nil
}

// linesFrom returns the lines in force for the decisions of a policy from a time on: those that were fixed
// when the policy was heard, and what was raised since then and before.
func (a *Alarms) linesFrom(policy string, start time.Time) map[Watch]Line {
	lines := make(map[Watch]Line)
	for _, l := range a.lines {
		_, own := lines[l.Watch]
		if l.Policy == policy || own && l.Policy == "" && !l.Since.After(start) {
			lines[l.Watch] = l
		}
	}
	return lines
}

// fnrs returns the critical FNRs that are shown of a policy, in order: those that have a line, and those
// whose alarm is up.
func (a *Alarms) fnrs(t *truth.Terms, now time.Time) (shown []Watch) {
	lines := a.linesFrom(t.Policy.Hash, now)
	for w := range lines {
		shown = append(shown, w)
	}
	for _, w := range a.Raised() {
		if _, held := lines[w]; !held {
			shown = append(shown, w)
		}
	}
	shown = slices.DeleteFunc(shown, func(w Watch) bool {
		_, known := w.classIn(t)
		return w.Risk != evidence.FNR || !known
	})
	slices.SortFunc(shown, Watch.compare)
	return shown
}

// modelFNR returns the critical FNR of all critical classes if the model was ever held to a line on it, or
// its alarm is up; nil otherwise.
func (a *Alarms) modelFNR() []Watch {
	w := Watch{Risk: evidence.FNR}
	if _, held := a.Standing(w); !held && !slices.Contains(a.Raised(), w) {
		return nil
	}
	return []Watch{w}
}

// values returns the values of lines.
func values(lines map[Watch]Line) Lines {
	v := make(Lines, len(lines))
	for w, l := range lines {
		v[w] = l.Above
	}
	return v
}
