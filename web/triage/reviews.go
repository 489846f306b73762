package triage

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/pagestate"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// maxReviews is how many inputs the list to review has, of all models together.
const maxReviews = 1000

// States of an input that is to be reviewed.
const (
	openState    = "open"    // no reader has entered it, as far as this daemon knows
	againState   = "again"   // it was read, and another source should read it
	enteredState = "entered" // no further reading is wanted
)

// reading is an outcome of an input, with the ledger's answer.
type reading struct {
	outcome *ckdv1.Outcome
	answer  *ckdv1.OutcomeAnswer
}

// isRead reports whether an outcome with this answer makes the input known. One that the ledger keeps
// apart does not: an audit that was read by someone who had seen the model's answer is still open.
func isRead(a *ckdv1.OutcomeAnswer) bool {
	return a.GetError() == nil && a.GetStatus() != ckdv1.OutcomeStatus_OUTCOME_STATUS_APART
}

// read notes an outcome.
func (d *input) read(r *reading) {
	if source := r.outcome.GetSource(); !slices.Contains(d.sources, source) {
		d.sources = append(d.sources, source)
	}
	d.truth, d.answer = r.outcome.GetTruth(), r.answer
}

// state returns the state of an input to review.
func (d *input) state() string {
	switch {
	case d.answer == nil:
		return openState
	case d.answer.GetWanted() != ckdv1.Wanted_WANTED_UNSPECIFIED:
		return againState
	}
	return enteredState
}

// blind reports whether the decision on the input must stay hidden from readers.
func (d *input) blind() bool { return d.audited && d.review && d.state() != enteredState }

// key names an input to review: the unique number of its receipt.
func (d *input) key() string {
	number := receipt.IDOf(&d.receipt)
	return base64.RawURLEncoding.EncodeToString(number[:])
}

// reviews returns the last inputs to review of some models. template is that of Options.CaseURL.
func (list *Inputs) reviews(models []string, template string) (all []pagestate.Review, classes map[string][]string) {
	all, classes = []pagestate.Review{}, map[string][]string{}
	for _, model := range models {
		kept, ok := list.models.Load(model)
		if !ok {
			continue
		}
		kept.(*ring).each(func(referred *input) bool {
			if !referred.review {
				return true
			}
			r := pagestate.Review{
				Key: referred.key(), At: referred.At, Model: model, ID: string(referred.id), URL: caseURL(template, string(referred.id)),
				Policy: referred.Policy, State: referred.state(), Receipt: slices.Clone(referred.receipt[:]),
			}
			if r.State == enteredState {
				r.Outcome = &pagestate.EnteredOutcome{Truth: referred.truth, Predicted: referred.answer.GetPredicted()}
			}
			classes[referred.Policy] = referred.classes
			all = append(all, r)
			return true
		})
	}
	slices.SortStableFunc(all, func(a, b pagestate.Review) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxReviews)], classes
}

// version returns a text that changes when anything about the inputs of some models does.
func (list *Inputs) version(models []string) string {
	changes := 0
	for _, model := range models {
		if kept, ok := list.models.Load(model); ok {
			r := kept.(*ring)
			r.mu.Lock()
			changes += r.added + r.read
			r.mu.Unlock()
		}
	}
	return fmt.Sprintf("%d-%d", len(models), changes)
}

// find returns a copy of the input with a key, and its model. The last result is false if it is not
// kept any more.
func (list *Inputs) find(key string) (model string, found input, ok bool) {
	list.models.Range(func(name, kept any) bool {
		kept.(*ring).each(func(one *input) bool {
			if one.review && one.key() == key {
				model, found, ok = name.(string), *one, true
				found.id, found.Fingerprint = nil, nil // their memory is reused
			}
			return !ok
		})
		return !ok
	})
	return model, found, ok
}

// caseURL returns the link to an input by a template; empty where an id can have none.
func caseURL(template, id string) string {
	if template == "" || id == "" || id == "." || id == ".." || len(id) >= maxIDSize { // it may have been cut
		return ""
	}
	return strings.ReplaceAll(template, "{id}", strings.ReplaceAll(url.QueryEscape(id), "+", "%20"))
}

// reviewList returns the list that the sender of a request may see, of one model or, for no name, of all.
func (p *Page) reviewList(r *http.Request, model string) *pagestate.ReviewList {
	l := &pagestate.ReviewList{Models: []string{}, Reviews: []pagestate.Review{}, Classes: map[string][]string{}}
	if p.options.Inputs == nil {
		l.Why = "off"
		return l
	}
	for _, of := range p.options.Policies() {
		if p.options.MaySeeRecent(r.Context(), of.Name) {
			l.Models = append(l.Models, of.Name)
		}
	}
	if len(l.Models) == 0 {
		l.Why = "not allowed"
		return l
	}
	slices.Sort(l.Models)
	l.Kept = p.options.Inputs.keep
	l.Source = p.options.Source(r.Context())
	switch {
	case p.options.Enter == nil:
		l.EnterWhy = "no ledger"
	case !slices.ContainsFunc(l.Models, func(of string) bool { return p.options.MayEnter(r.Context(), of) }):
		l.EnterWhy = "not allowed"
	default:
		l.Enter = true
	}
	shown := l.Models
	if model != "" {
		shown = slices.DeleteFunc(slices.Clone(l.Models), func(of string) bool { return of != model })
	}
	l.Version = cmp.Or(p.options.Inputs.version(shown), "0")
	l.Reviews, l.Classes = p.options.Inputs.reviews(shown, p.options.CaseURL)
	return l
}
