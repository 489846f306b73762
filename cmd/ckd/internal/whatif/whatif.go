package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/policy"
)

// Report says what the new policy would have decided. Counts are of decisions: a record that stands for several counts
// as these.
type Report struct {
	Model      string `json:"model"`
	PolicyHash string `json:"policy_hash"` // of the new policy
	// From and To are when the first and the last of the decisions were made.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Records counts the records, and Decisions what they stand for: Weighted says that some stand for several.
	Records   int     `json:"records"`
	Decisions float64 `json:"decisions"`
	Weighted  bool    `json:"weighted"`
	// More counts what only the new policy sends to people, Fewer what only the old one has sent, and Unknown what
	// cannot be known.
	More        float64 `json:"more"`
	MorePer1000 float64 `json:"more_per_1000"`
	Fewer       float64 `json:"fewer"`
	Unknown     float64 `json:"unknown"`
	// Why says why decisions cannot be known, the most frequent first.
	Why     []Why    `json:"why"`
	Changes []Change `json:"changes"`
	// OnlyReviewed says that the log lacks what was retained and not drawn for a review.
	OnlyReviewed bool `json:"only_reviewed"`
	// StopsEarly says that the new policy may decide before the last pass, which is left aside.
	StopsEarly bool `json:"stops_early"`
	// Lost counts records of all models that the daemons lost.
	Lost uint64 `json:"lost"`
	// Faulty counts lines that are none of a decision log, as where a daemon was killed.
	Faulty   int       `json:"faulty"`
	Outcomes *Outcomes `json:"outcomes,omitempty"`
}

// Why is why decisions cannot be known.
type Why struct {
	Why       string  `json:"why"`
	Decisions float64 `json:"decisions"`
}

// Change counts decisions by what became of them and what would have.
type Change struct {
	Then string `json:"then"`
	// Now is empty where it cannot be known.
	Now       string  `json:"now"`
	Decisions float64 `json:"decisions"`
	// ByClass counts them by the class predicted.
	ByClass map[string]float64 `json:"by_class"`
}

// Outcomes says what is known of misses: critical inputs called safe that nobody looks at.
type Outcomes struct {
	// Known counts records whose truth is known.
	Known int `json:"known"`
	// ReadThen and ReadNow count the known misses, and MissedThen and MissedNow estimate all of them: a miss that a
	// review found stands for as many as one over the probability of the review.
	ReadThen   int     `json:"read_then"`
	ReadNow    int     `json:"read_now"`
	MissedThen float64 `json:"missed_then"`
	MissedNow  float64 `json:"missed_now"`
	// Unread counts what was sent to people, is called safe, would now be retained, and has no truth: each may be
	// a miss. Undecided counts the critical inputs called safe of which the new decision cannot be known.
	Unread    int `json:"unread"`
	Undecided int `json:"undecided"`
	// NotDrawn counts known misses that no review found: what they stand for is not known, and they count nowhere.
	NotDrawn int `json:"not_drawn"`
}

// Study collects the records of a log. It is not safe for concurrent use.
type Study struct {
	next    *policy.Policy
	formers map[string]*former // by hash
	truth   *outcomefile.Truths
	report  Report
	// onlyReviewed has, by hash, whether a policy logs nothing of what nobody is to review.
	onlyReviewed map[string]bool

	why     map[string]float64
	changes map[[2]string]*Change
	others  map[string]bool // models that are not that of the policy
}

// New returns a Study of a policy.
func New(next *policy.Policy) *Study {
	s := &Study{next: next, formers: map[string]*former{}, onlyReviewed: map[string]bool{},
		why: map[string]float64{}, changes: map[[2]string]*Change{}, others: map[string]bool{},
		report: Report{Model: next.Name, PolicyHash: next.Hash, StopsEarly: next.EarlyStop() != nil}}
	s.Policy(next)
	return s
}

// Policy takes a policy that may have decided.
func (s *Study) Policy(p *policy.Policy) {
	if p.Name == s.next.Name && s.formers[p.Hash] == nil {
		s.formers[p.Hash] = newFormer(p, s.next)
	}
}

// Truth takes what was true. The error is of a class that the model does not have.
func (s *Study) Truth(t *outcomefile.Truths) error {
	s.truth = t
	s.report.Outcomes = &Outcomes{}
	return t.Check(s.next.Name, s.next.Classes)
}

// Line takes a line of a log.
func (s *Study) Line(l *decisionlog.Line) {
	switch {
	case l.Torn():
		return // it is being written
	case l.Start != nil:
		for _, text := range l.Start.Policies {
			if text.Model != s.next.Name {
				continue
			}
			if p := readPolicy(text); p != nil {
				s.Policy(p)
				s.onlyReviewed[p.Hash] = p.Log.Share() == 0
			}
		}
		return
	case l.Close != nil:
		s.report.Lost += l.Close.Lost
		return
	}
	switch d, err := l.Decision(); {
	case err != nil:
		s.report.Faulty++
	case d.Model != s.next.Name:
		s.others[d.Model] = true
	default:
		s.add(d)
	}
}

// add takes a record.
func (s *Study) add(d *decisionlog.Decision) {
	r := &s.report
	stands := 1.0
	if d.Share != nil && *d.Share > 0 {
		stands = 1 / *d.Share
	}
	r.Records++
	r.Decisions += stands
	r.Weighted = r.Weighted || stands > 1
	r.OnlyReviewed = r.OnlyReviewed || s.onlyReviewed[d.PolicyHash]
	if r.From.IsZero() || d.Time.Before(r.From) {
		r.From = d.Time
	}
	if d.Time.After(r.To) {
		r.To = d.Time
	}
	action, why := s.decide(d)
	if why != "" {
		r.Unknown += stands
		s.why[why] += stands
	} else if then, now := d.Action == policy.Defer.String(), action == policy.Defer; now && !then {
		r.More += stands
	} else if then && !now {
		r.Fewer += stands
	}
	change := s.changes[[2]string{d.Action, action.String()}]
	if change == nil {
		change = &Change{Then: d.Action, Now: action.String(), ByClass: map[string]float64{}}
		s.changes[[2]string{d.Action, action.String()}] = change
	}
	change.Decisions += stands
	change.ByClass[d.Predicted] += stands
	if s.truth != nil {
		s.judge(d, action)
	}
}

// judge takes what is true of an input; no action stands for a decision that cannot be known.
func (s *Study) judge(d *decisionlog.Decision, now policy.Action) {
	o := s.report.Outcomes
	truth, known := s.truth.Of(d)
	if known {
		o.Known++
	}
	deferred := d.Action == policy.Defer.String()
	switch {
	case s.isCritical(d.Predicted): // called critical, and so not missed
		return
	case !known:
		if deferred && (now == policy.Retain || now == policy.Observe) {
			o.Unread++
		}
		return
	case !s.isCritical(truth):
		return
	}
	stands := 1.0
	if !deferred {
		if d.Propensity == nil || !d.Review || *d.Propensity <= 0 {
			o.NotDrawn++
			return
		}
		stands = 1 / *d.Propensity
		o.ReadThen++
		o.MissedThen += stands
	}
	switch now {
	case 0:
		o.Undecided++
	case policy.Retain, policy.Observe:
		o.ReadNow++
		o.MissedNow += stands
	}
}

func (s *Study) isCritical(class string) bool {
	return slices.ContainsFunc(s.next.Critical, func(k int) bool { return s.next.Classes[k] == class })
}

// Report returns what was found. The error says that the log has no record of the model.
func (s *Study) Report() (*Report, error) {
	r := &s.report
	if r.Records == 0 {
		has := "none of any model"
		if len(s.others) > 0 {
			has = "records of " + strings.Join(slices.Sorted(maps.Keys(s.others)), ", ")
		}
		return nil, fmt.Errorf("the log has no record of model %q, but %s", r.Model, has)
	}
	r.MorePer1000 = 1000 * r.More / r.Decisions
	r.Why, r.Changes = []Why{}, []Change{}
	for why, n := range s.why {
		r.Why = append(r.Why, Why{why, n})
	}
	slices.SortFunc(r.Why, func(a, b Why) int { return cmp.Or(cmp.Compare(b.Decisions, a.Decisions), cmp.Compare(a.Why, b.Why)) })
	for _, c := range s.changes {
		r.Changes = append(r.Changes, *c)
	}
	changed := func(c *Change) int { // what changes comes first, and what cannot be known last
		switch c.Now {
		case c.Then:
			return 1
		case "":
			return 2
		}
		return 0
	}
	slices.SortFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(changed(&a)-changed(&b), cmp.Compare(b.Decisions, a.Decisions), cmp.Compare(a.Then+a.Now, b.Then+b.Now))
	})
	return r, nil
}
