package triage

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
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

// States of an input that is to be reviewed, as one source may know them.
const (
	openState    = "open"            // the source may read it
	enteredState = "entered"         // the source has read it
	otherState   = "read by another" // the source has not read it, and no further reading is wanted
)

// reading is an outcome of an input, with the ledger's answer.
type reading struct {
	outcome *ckdv1.Outcome
	answer  *ckdv1.OutcomeAnswer
}

// read notes an outcome. One that the ledger keeps apart does not make the input known to others: an
// audit that was read by someone who had seen the model's answer still wants a reading.
func (d *input) read(r *reading) {
	if source := r.outcome.GetSource(); !slices.Contains(d.sources, source) {
		d.sources = append(d.sources, source)
	}
	if r.answer.GetStatus() != ckdv1.OutcomeStatus_OUTCOME_STATUS_APART {
		d.truth, d.answer = r.outcome.GetTruth(), r.answer
	}
}

// settled reports whether no further reading of the input is wanted.
func (d *input) settled() bool {
	return d.answer != nil && d.answer.GetWanted() == ckdv1.Wanted_WANTED_UNSPECIFIED
}

// waits reports whether a reading of the input is wanted.
func (d *input) waits() bool { return d.review && !d.settled() }

// stateFor returns the state of an input as a source may know it. To a source that has not read it, an
// input that wants another reading looks like one that wants the first: most of the former were read as
// critical, so that the difference would tell.
func (d *input) stateFor(source string) string {
	switch {
	case slices.Contains(d.sources, source):
		return enteredState
	case d.settled():
		return otherState
	}
	return openState
}

// blind reports whether the decision on the input must stay hidden from readers. Without audits it
// must where there is a ledger, which asks for second readings.
func (d *input) blind(ledger bool) bool { return (d.audited || ledger) && d.waits() }

// key names an input to review: the unique number of its receipt.
func (d *input) key() string {
	number := receipt.IDOf(&d.receipt)
	return base64.RawURLEncoding.EncodeToString(number[:])
}

// reviews adds to l the inputs to review of some models, as a source may know them, and how many that wait
// are not listed. template is that of Options.CaseURL.
func (list *Inputs) reviews(l *pagestate.ReviewList, models []string, source, template string) {
	for _, model := range models {
		kept, ok := list.models.Load(model)
		if !ok {
			continue
		}
		entries := kept.(*ring)
		entries.mu.Lock()
		l.Lost += entries.lost
		entries.mu.Unlock()
		entries.each(func(referred *input) bool {
			if !referred.review {
				return true
			}
			r := pagestate.Review{
				Key: referred.key(), At: referred.At, Model: model, ID: string(referred.id), URL: caseURL(template, string(referred.id)),
				Policy: referred.Policy, State: referred.stateFor(source), Receipt: slices.Clone(referred.receipt[:]),
			}
			if r.State == enteredState && referred.settled() { // who has not read it is not told
				r.Outcome = &pagestate.EnteredOutcome{Truth: referred.truth, Predicted: referred.answer.GetPredicted()}
			}
			l.Classes[referred.Policy] = referred.classes
			l.Reviews = append(l.Reviews, r)
			return true
		})
	}
	slices.SortStableFunc(l.Reviews, func(a, b pagestate.Review) int {
		switch openA, openB := a.State == openState, b.State == openState; {
		case openA && openB:
			return a.At.Compare(b.At)
		case openA:
			return -1
		case openB:
			return 1
		}
		return b.At.Compare(a.At)
	})
	if len(l.Reviews) > maxReviews {
		for _, r := range l.Reviews[maxReviews:] {
			if r.State == openState {
				l.Lost++
			}
		}
		l.Reviews = l.Reviews[:maxReviews]
	}
}

// versionOf returns a text that changes with what a list shows. It is made of nothing else, or it would
// change with the first reading of an input that looks unread.
func versionOf(l *pagestate.ReviewList) string {
	shown, _ := json.Marshal(l) // never fails: text and times
	h := fnv.New64a()
	_, _ = h.Write(shown) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
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

// reviewList returns the list that the sender of a request may see: of one model or, for no name, of all.
// The source is the sender's, or the one that the query names where the sender is not known.
func (p *Page) reviewList(r *http.Request) *pagestate.ReviewList {
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
	query, shown := r.URL.Query(), l.Models
	if model := query.Get("model"); model != "" {
		shown = slices.DeleteFunc(slices.Clone(l.Models), func(of string) bool { return of != model })
	}
	p.options.Inputs.reviews(l, shown, cmp.Or(l.Source, query.Get("source")), p.options.CaseURL)
	l.Version = versionOf(l)
	return l
}
