package outcomes

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/promise"
)

// Statement says in at most three sentences whether a promise holds: the verdict, the figure that it
// rests on, and what changes how that is read.
func Statement(p *promise.Promise) string {
	f := deciding(p)
	said := []string{verdictSentence(p, f)}
	since := sinceSentence(p, f)
	if since != "" {
		said = append(said, since, averageAfter(p, f))
	} else {
		said = append(said, averageSentence(p, f), modelSentence(p, f))
		if p.Verdict == promise.TooFew && f.Verdict == promise.TooFew {
			said = append(said, expectedSentence(p, f))
		}
	}
	var b strings.Builder
	for _, sentence := range said {
		if sentence == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(sentence + ".")
	}
	return b.String()
}

// deciding returns the first figure with the verdict of the promise: the critical miss rate where none
// has it.
func deciding(p *promise.Promise) *promise.Figure {
	for _, f := range p.Mature.Watched() {
		if f.Monitor != nil && f.Verdict == p.Verdict {
			return f
		}
	}
	return &p.Mature.MissRate
}

func verdictSentence(p *promise.Promise, f *promise.Figure) string {
	switch p.Verdict {
	case promise.Holding:
		return "The promise holds"
	case promise.Violated:
		if f.Monitor == nil || f.Monitor.RaisedAt.IsZero() {
			return "Alarm: " + violations(&p.Mature)
		}
		return fmt.Sprintf("Alarm since %s: %s", dateOf(p, f.Monitor.RaisedAt), violations(&p.Mature))
	case promise.InDoubt:
		why := fmt.Sprintf("the evidence against the %s is at %.0f%% of what raises the alarm", f.Name(), 100*f.Monitor.LogEvidence)
		if f.Low > f.Line || f.Model.Low > f.Line {
			why = fmt.Sprintf("the interval of the %s lies above its line", f.Name())
		}
		return "Whether the promise holds is in doubt: " + why
	case promise.NoLine:
		return "The policy has no line that its misses could be held against"
	}
	if at := cleared(&p.Mature); !at.IsZero() {
		return fmt.Sprintf("The alarm was cleared on %s; whether the promise holds since then is not known yet", at.Format(time.DateOnly))
	}
	if f.Verdict != promise.TooFew && len(p.Why) > 0 { // enough outcomes, of which too many are missing
		return "Whether the promise holds is not known: " + p.Why[0]
	}
	return "Too few outcomes to tell whether the promise holds"
}

// violations names the alarms that are up, each with its line.
func violations(s *promise.Summary) string {
	const most = 3
	var names []string
	for _, f := range s.Watched() {
		if f.Monitor != nil && f.Monitor.Raised {
			names = append(names, fmt.Sprintf("the %s is above %s", f.Name(), brokenLine(f)))
		}
	}
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, "; ")
}

// brokenLine names a line that a risk is above, in the words of its origin.
func brokenLine(f *promise.Figure) string {
	line := percent(f.Line)
	who, on, stated := strings.Cut(strings.TrimPrefix(f.LineOrigin, "stated by "), " on ")
	switch {
	case f.LineOrigin == "certified":
		return "the " + line + " that was certified, so that the certificate is void"
	case f.LineOrigin == "expected at most":
		return "the " + line + " that was expected at most"
	case stated:
		return "the line of " + line + " that " + who + " stated on " + on
	}
	return "its line of " + line
}

// sinceSentence says since when an alarm's risk seems to have risen, and how large it is since then. It is
// empty where no alarm is up, or its onset is not known.
func sinceSentence(p *promise.Promise, f *promise.Figure) string {
	if f.Monitor == nil || f.Monitor.Since == nil || !f.Monitor.Since.Rate.Known() {
		return ""
	}
	since := f.Monitor.Since
	return fmt.Sprintf("Since about %s, %s of %s %s (95%%: %s to %s), by %d misses among %d; that date is chosen by looking", dateOf(p, since.Start),
		percent(since.Rate.Value), wholeOf(f), missedOf(f), percent(since.Rate.Low), percent(since.Rate.High), since.Rate.Events, since.Rate.Total)
}

// averageAfter says beside the risk since an onset what the average is.
func averageAfter(p *promise.Promise, f *promise.Figure) string {
	if math.IsNaN(f.Value) {
		return ""
	}
	return fmt.Sprintf("The average since %s, %s (95%%: %s to %s), still includes the good time before", dateOf(p, p.Cohorts.Since), percent(f.Value), percent(f.Low), percent(f.High))
}

// averageSentence says what the policy's own outcomes average to, and the line with its origin.
func averageSentence(p *promise.Promise, f *promise.Figure) string {
	said := "No critical input has come back yet, of outcomes that are due"
	if !math.IsNaN(f.Value) {
		said = fmt.Sprintf("On average since %s, %s of %s %s (95%%: %s to %s), by %d outcomes, %d of them critical", dateOf(p, p.Cohorts.Since),
			percent(f.Value), wholeOf(f), missedOf(f), percent(f.Low), percent(f.High), f.Outcomes, f.Critical)
	}
	if f.Monitor != nil && p.Verdict != promise.Violated {
		said += "; the line is " + percent(f.Line)
		if f.LineOrigin != "" {
			said += ", " + f.LineOrigin
		}
	}
	return said
}

// modelSentence says what the outcomes under all policies of the model average to, where the verdict rests
// on these and not on the policy's own.
func modelSentence(p *promise.Promise, f *promise.Figure) string {
	switch {
	case math.IsNaN(f.Model.Value):
		return ""
	case f.Verdict == promise.Holding && !(f.AtSensitivity.High < f.Line):
	case f.Verdict == promise.InDoubt && f.Model.Low > f.Line && !(f.Low > f.Line):
	default:
		return ""
	}
	return fmt.Sprintf("Over all policies of the model since %s the %s is %s (95%%: %s to %s)", dateOf(p, p.Since), f.Name(),
		percent(f.Model.Value), percent(f.Model.Low), percent(f.Model.High))
}

// expectedSentence says what outcomes of earlier policies say of this one. It is empty where these say
// nothing.
func expectedSentence(p *promise.Promise, f *promise.Figure) string {
	if p.Expected == nil {
		return ""
	}
	risk, s := promise.Figure{Risk: f.Risk}, p.Expected.MissRate // no class has an estimate of its own
	if f.Risk == evidence.FNR {
		s = p.Expected.FNR
	}
	if !s.Known() {
		return ""
	}
	return fmt.Sprintf("Decided again by this policy's rule, outcomes of earlier policies until %s say that %s of %s %s (95%%: %s to %s), by %d misses among %d: an estimate, no evidence",
		dateOf(p, p.Expected.Until), percent(s.Value), wholeOf(&risk), missedOf(&risk), percent(s.Low), percent(s.High), s.Events, s.Total)
}

// expectedStatement is expectedSentence as a sentence of its own.
func expectedStatement(p *promise.Promise) string {
	if said := expectedSentence(p, deciding(p)); said != "" {
		return said + "."
	}
	return ""
}

// cleared returns when an alarm was last cleared; zero for never.
func cleared(s *promise.Summary) (last time.Time) {
	for _, f := range s.Watched() {
		if f.Monitor != nil && f.Monitor.Cleared.After(last) {
			last = f.Monitor.Cleared
		}
	}
	return last
}

// wholeOf names what a figure is a share of, and missedOf which part of it.
func wholeOf(f *promise.Figure) string {
	whole := "critical inputs"
	if f.Class != "" {
		whole = "inputs of class " + f.Class
	}
	if f.Risk == evidence.FNR {
		return "the retained " + whole
	}
	return "all " + whole
}

func missedOf(f *promise.Figure) string {
	if f.Risk == evidence.FNR {
		return "are called safe"
	}
	return "are retained and called safe"
}

// dateOf returns a day, and the minute where cohorts are shorter than a day.
func dateOf(p *promise.Promise, t time.Time) string {
	if p.Cohorts.Period > 0 && p.Cohorts.Period < 24*time.Hour {
		return t.UTC().Format("2006-01-02 15:04 MST")
	}
	return t.UTC().Format(time.DateOnly)
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }
