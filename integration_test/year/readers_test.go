package year

import (
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// readers are the people who find out what is true, each answer on its day.
type readers struct {
	*site
	tasks []task // in the order of their days
	// withdraw lets a part of the critical readings of missed inputs be taken back by their source, and three
	// in each month anyway, of which some may be refused.
	withdraw  float64
	withdrawn [14]int // by month
}

// task is an answer to be given.
type task struct {
	day time.Time
	*decision
	says reading
}

// later has someone answer some days after the present one.
func (r *readers) later(days int, d *decision, says reading) {
	t := task{r.now().Truncate(day).Add(time.Duration(days) * day), d, says}
	place, _ := slices.BinarySearchFunc(r.tasks, t.day, func(o task, at time.Time) int {
		if o.day.After(at) {
			return 1
		}
		return -1 // after those of the same day
	})
	r.tasks = slices.Insert(r.tasks, place, t)
}

// happens draws an event.
func (r *readers) happens(p float64) bool { return r.rand.Float64() < p }

// other returns a class of the other side than a class.
func (r *readers) other(class int) int { return (class + 2) % len(classes) }

// take plans who will answer when whether a decision was right.
func (r *readers) take(d *decision) {
	if !d.reviewed() || r.happens(0.01) { // some are never answered
		return
	}
	days := r.rand.IntN(11)
	if r.happens(0.01) {
		days = 15 + r.rand.IntN(15) // after they were due
	}
	first := reading{source: "first", class: d.truth}
	at := r.now().Truncate(day).Add(time.Duration(days)*day + 14*time.Hour)
	timed := d.at.Before(at) && r.happens(0.5) // else the ledger says when
	if timed {
		first.at = at
	}
	if r.happens(0.02) {
		first.class = r.other(first.class)
	}
	r.later(days, d, first)
	again := first
	again.at, again.class = at.Add(2*time.Hour), r.other(first.class)
	sayMiss := isCritical(first.class) && !isCritical(d.predicted)
	month := (r.day + days + 1) / 30
	switch {
	case sayMiss && timed && (r.withdrawn[month] < 3 || r.happens(r.withdraw)): // taken back, towards the model's answer
		r.withdrawn[month]++
		r.later(days+1, d, again)
	case r.happens(0.05): // the file is sent again the next day
		r.later(days+1, d, first)
	case r.happens(0.04): // another source contradicts, without having been asked
		r.later(days+1, d, reading{source: "passer-by", class: r.other(first.class)})
	case r.happens(0.08) && timed && d.stratum == receipt.Deferred && !sayMiss: // corrected
		r.later(days+1, d, again)
	case r.happens(0.03): // someone who had seen the model's answer
		r.later(days+1, d, reading{source: "colleague", class: d.predicted, sawModel: true})
	case isCritical(d.truth) && r.happens(0.03):
		r.later(days+3, d, reading{source: "pathology", class: d.truth, kind: biopsy})
	case isCritical(d.truth) && r.happens(0.04):
		r.later(days+3, d, reading{source: "clinic", class: d.truth, kind: followUp})
	case r.happens(0.01): // what was not treated is not worked up
		r.later(days+4, d, reading{source: "clinic", class: 0, kind: followUp})
	}
}

// kinds are the kinds of readings in messages.
var kinds = [...]ckdv1.OutcomeKind{look: ckdv1.OutcomeKind_OUTCOME_KIND_READING,
	followUp: ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP, biopsy: ckdv1.OutcomeKind_OUTCOME_KIND_BIOPSY}

// answer sends the answers of the day, and those that could not be sent before, to the ledger.
func (r *readers) answer() {
	r.Helper()
	if r.ledger.Daemon == nil {
		return
	}
	today, n := r.now().Truncate(day), 0
	for n < len(r.tasks) && !r.tasks[n].day.After(today) {
		n++
	}
	due := r.tasks[:n:n]
	r.tasks = r.tasks[n:]
	const atOnce = 200 // fit one message: what a source says in the next one comes after an answer
	for part := range slices.Chunk(due, atOnce) {
		r.send(part)
	}
}

// send sends some answers in one message.
func (r *readers) send(due []task) {
	r.Helper()
	var outcomes []*ckdv1.Outcome
	for i := range due {
		t := &due[i]
		o := &ckdv1.Outcome{Receipt: t.receipt, Truth: classes[t.says.class], Source: t.says.source, SawModel: t.says.sawModel,
			Kind: kinds[t.says.kind]}
		if !t.says.at.IsZero() {
			o.Time = timestamppb.New(t.says.at)
		}
		outcomes = append(outcomes, o)
	}
	answers, err := r.ledger.ReportOutcomes(r.Context(), outcomes, client.Reconnect{Disabled: true})
	switch {
	case r.full && status.Code(err) == codes.Unavailable: // sent again the next day
		r.account.note(r.day/30, "not stored")
		for _, t := range due {
			r.later(1, t.decision, t.says)
		}
		return
	case r.full:
		r.account.problem("%d answers are taken while the ledger cannot write: %v", len(outcomes), err)
	case err != nil:
		r.Fatal(err)
	}
	now := r.now()
	for i, a := range answers {
		r.answered(&due[i], now, a)
	}
}

// answered writes down an answer of the ledger, and what it asks for.
func (r *readers) answered(t *task, now time.Time, a *ckdv1.OutcomeAnswer) {
	became := strings.ToLower(strings.TrimPrefix(a.GetStatus().String(), "OUTCOME_STATUS_"))
	r.account.statuses[became]++
	if _, _, err := r.has.Open(t.receipt); errors.Is(err, receipt.ErrUnknownKey) {
		if became != "unknown_key" {
			r.account.problem("the answer %v about %s, whose key the ledger lacks, is %s", t.says, t.id, became)
		}
		r.account.note(r.day/30, "unknown_key")
		if r.lags { // sent again the next day
			r.later(1, t.decision, t.says)
		}
		return
	}
	if t.deleted {
		r.account.note(r.day/30, "deleted")
		if became != "invalid" || !strings.Contains(a.GetError().GetMessage(), "deleted") {
			r.account.problem("the answer %v about %s, whose outcomes were deleted, is %s: %v", t.says, t.id, became, a.GetError().GetMessage())
		}
		return
	}
	if a.GetError() != nil {
		r.account.problem("the answer %v about %s is refused: %v", t.says, t.id, a.GetError().GetMessage())
		return
	}
	d := t.decision
	before := d.now()
	wantedBefore := r.wanted(d, &before)
	again, same, outdated := false, false, false
	for _, o := range d.readings {
		if o.source == t.says.source && o.kind == t.says.kind {
			again, same = true, o.class == t.says.class && o.sawModel == t.says.sawModel
			outdated = outdated || !t.says.at.IsZero() && t.says.at.Before(o.when())
		}
	}
	t.says.reported = now
	for what, is := range map[string]bool{
		"doubled": same, "late": !now.Before(d.dueAt()), "second": t.says.source == "second", "third": t.says.source == "third",
	} {
		if is {
			r.account.note(r.day/30, what)
		}
	}
	if !same {
		d.read(t.says)
	}
	asked := a.GetWanted()
	if asked == ckdv1.Wanted_WANTED_SECOND_READ {
		after := d.now()
		d.sampled = d.sampled || !after.missed
	}
	after := d.now()
	if after.disputed() && !before.disputed() {
		r.account.note(r.day/30, "contradicting")
	}
	if after.withdrawn && !before.withdrawn {
		r.account.note(r.day/30, "withdrawn")
	}
	want := r.wanted(d, &after)
	duplicate := d.duplicate(endOfTime)
	expected := ""
	switch {
	case duplicate, same:
		expected = "duplicate"
	case d.drawn() && t.says.kind == look && (t.says.sawModel || d.wasAnswered(&t.says)):
		expected = "apart"
	case outdated:
		expected = "duplicate"
	case again:
		expected = "corrected"
	case want != ckdv1.Wanted_WANTED_UNSPECIFIED && want != wantedBefore:
		expected = "second_read_wanted"
	default:
		expected = "counted"
	}
	if became != expected {
		r.account.problem("the answer %v about %s is %s (%s), expected %s", t.says, t.id, became, a.GetNote(), expected)
	}
	if !duplicate && asked != want {
		r.account.problem("the answer %v about %s is answered with %v, expected %v", t.says, t.id, asked, want)
	}
	if asked == wantedBefore || r.happens(0.02) {
		return
	}
	source := map[ckdv1.Wanted]string{ckdv1.Wanted_WANTED_SECOND_READ: "second", ckdv1.Wanted_WANTED_THIRD_READ: "third"}[asked]
	if source != "" {
		r.later(1+r.rand.IntN(3), d, reading{source: source, class: d.truth})
	}
}

// wanted returns which further reading the rules ask for.
func (r *readers) wanted(d *decision, f *finding) ckdv1.Wanted {
	switch {
	case f.settled, f.first == nil:
	case !f.outweighed && (f.disputed() || f.torn):
		return ckdv1.Wanted_WANTED_THIRD_READ
	case f.readers < 2 && (d.sampled || f.missed):
		return ckdv1.Wanted_WANTED_SECOND_READ
	}
	return ckdv1.Wanted_WANTED_UNSPECIFIED
}

// forget has the ledger not know what it was told from a time on; it will be told again.
func (r *readers) forget(from time.Time) {
	for d := range r.account.all() {
		kept := d.readings[:0]
		for _, said := range d.readings {
			if said.reported.Before(from) {
				kept = append(kept, said)
			} else {
				r.later(0, d, said)
			}
		}
		d.readings, d.found = kept, nil
	}
}
