package ledger

import (
	"encoding/hex"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// A Filter chooses the lines of an export. Zero fields choose all.
type Filter struct {
	// Model reports whether lines of a model are chosen; nil for all.
	Model func(name string) bool
	// From and Before bound the time of a decision, or the begin of a period.
	From, Before time.Time
}

func (f *Filter) admitsModel(name string) bool { return f.Model == nil || f.Model(name) }

func (f *Filter) admits(model string, start int64) bool {
	return f.admitsModel(model) && (f.From.IsZero() || start >= f.From.UnixMicro()) && (f.Before.IsZero() || start < f.Before.UnixMicro())
}

// Export writes the decisions that a filter chooses: by model, policy and version, and in each in the order
// of decision time and ID. It reads in pieces, so that it may take as long as it likes; decisions that come
// meanwhile may be left out.
func (l *Ledger) Export(w io.Writer, format Format, f Filter) error {
	out, err := newTable(w, format, columns)
	if err != nil {
		return err
	}
	if err := l.each(f, out.json != nil, func(w *walk, d *found) error { return out.write(w.line(d)) }); err != nil {
		return err
	}
	return out.flush()
}

// each calls take with the decisions that a filter chooses, in the order of Export, each with its sealed
// receipt if that is asked for. It stops at the first error, and returns it.
func (l *Ledger) each(f Filter, sealed bool, take func(*walk, *found) error) error {
	l.mu.Lock()
	_, err := l.compute()
	var chosen []*walk
	for _, name := range sortedKeys(l.models) {
		if !f.admitsModel(name) {
			continue
		}
		for _, r := range l.models[name].Runs {
			w := &walk{l: l, number: r.Number, terms: r.Terms, version: r.Name(), sealed: sealed}
			for _, c := range r.Cohorts {
				w.cohorts = append(w.cohorts, span{c.Start, c.Start + r.Period, r.Maturity(c)})
			}
			chosen = append(chosen, w)
		}
	}
	l.mu.Unlock()
	now := l.now()
	for _, w := range chosen {
		for _, c := range w.cohorts {
			if !f.From.IsZero() {
				c.from = max(c.from, f.From.UnixMicro())
			}
			if !f.Before.IsZero() {
				c.before = min(c.before, f.Before.UnixMicro())
			}
			w.mature = !now.Before(c.due)
			if err == nil && c.from < c.before {
				err = w.cohort(c.from, c.before, func(d *found) error { return take(w, d) })
			}
		}
	}
	return err
}

// A walk goes through the decisions of one policy and version.
type walk struct {
	l       *Ledger
	number  int64
	terms   *truth.Terms
	version string // text, or a hash in hex until told
	sealed  bool   // read the sealed receipts too
	cohorts []span
	mature  bool // the outcomes of the cohort at hand are all due
}

// A span is when a cohort begins and ends, in microseconds, and when its outcomes are due.
type span struct {
	from, before int64
	due          time.Time
}

// found is a decision with what its readings add up to.
type found struct {
	truth.Decision
	truth.Finding
	sealed []byte // receipt, if it was asked for
}

// errPiece ends a piece.
var errPiece = errors.New("piece")

// cohort calls take with the decisions of a cohort, piece by piece. What take is given is its own.
func (w *walk) cohort(from, before int64, take func(*found) error) error {
	const most = 50_000 // each piece reads the cohort anew
	var last store.Key
	for more := true; more; {
		var piece []*found
		more = false
		err := w.l.store.View(func(tx *store.Tx) error {
			return tx.Scan(w.number, from, before, func(d *truth.Decision) error {
				key := store.KeyOf(w.number, &d.Receipt, d.ID)
				if last != (store.Key{}) && key.Compare(&last) <= 0 {
					return nil
				}
				if len(piece) == most {
					more = true
					return errPiece
				}
				next := &found{Decision: *d}
				next.Readings = slices.Clone(d.Readings)
				next.Finding = w.terms.Find(&next.Decision, truth.EndOfTime)
				last, from = key, key.Time
				piece = append(piece, next)
				if !w.sealed {
					return nil
				}
				var err error
				next.sealed, err = tx.Sealed(key)
				return err
			})
		})
		if err != nil && !errors.Is(err, errPiece) {
			return err
		}
		for _, d := range piece {
			if err := take(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// A Line is a decision in an export as JSON. What is unknown is null.
type Line struct {
	ID         string              `json:"id"`
	Model      string              `json:"model"`
	Policy     string              `json:"policy"`
	Version    string              `json:"version"`
	Time       time.Time           `json:"time"`
	Stratum    string              `json:"stratum"`
	Action     string              `json:"action"`
	Reason     string              `json:"reason"`
	Gate       string              `json:"gate"`
	Predicted  string              `json:"predicted"`
	Passes     uint32              `json:"passes"`
	Settled    bool                `json:"settled"`
	Degenerate bool                `json:"degenerate"`
	Scores     map[string]*float64 `json:"scores"`
	Risk       *float64            `json:"risk"`
	Propensity *float64            `json:"propensity"`
	Reviewed   bool                `json:"reviewed"`
	Duplicate  bool                `json:"duplicate"`
	Group      *string             `json:"group"`
	Slices     []uint16            `json:"slices"`
	Truth      *string             `json:"truth"`
	Kind       string              `json:"kind,omitempty"`
	Disputed   bool                `json:"disputed"`
	Want       string              `json:"want,omitempty"`
	Mature     bool                `json:"mature"`
	Readings   []LineReading       `json:"readings"`
	Receipt    []byte              `json:"receipt"` // sealed
}

// A LineReading is a reading in a Line.
type LineReading struct {
	Source   string    `json:"source"`
	Kind     string    `json:"kind"`
	Truth    string    `json:"truth"`
	SawModel bool      `json:"saw_model"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reported time.Time `json:"reported"`
}

var columns = []string{"id", "model", "policy", "version", "time", "stratum", "action", "reason", "predicted", "risk", "propensity",
	"reviewed", "duplicate", "group", "truth", "kind", "disputed", "want", "readings", "first_reading", "mature"}

// record returns the cells of a line, without its single readings and scores. Those of unknown values are
// empty.
func (l *Line) record() []string {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 32)
	}
	first := ""
	for _, r := range l.Readings {
		if at := r.At.Format(time.RFC3339Nano); first == "" || at < first {
			first = at
		}
	}
	return []string{l.ID, l.Model, l.Policy, l.Version, l.Time.Format(time.RFC3339Nano), l.Stratum, l.Action, l.Reason, l.Predicted,
		number(l.Risk), number(l.Propensity), strconv.FormatBool(l.Reviewed), strconv.FormatBool(l.Duplicate), text(l.Group),
		text(l.Truth), l.Kind, strconv.FormatBool(l.Disputed), l.Want, strconv.Itoa(len(l.Readings)), first,
		strconv.FormatBool(l.Mature)}
}

// line returns the line of a decision.
func (w *walk) line(d *found) *Line {
	c, classes := &d.Receipt, w.terms.Policy.Classes
	known := func(x float32) *float64 {
		if v := float64(x); !math.IsNaN(v) && !math.IsInf(v, 0) {
			return &v
		}
		return nil
	}
	l := &Line{ID: hex.EncodeToString(d.ID[:]), Model: w.terms.Policy.Name, Policy: hex.EncodeToString(c.Policy[:]), Version: w.version,
		Time: time.UnixMicro(c.Time).UTC(), Stratum: c.Stratum.String(), Action: policy.Action(c.Action).String(),
		Reason: policy.Reason(c.Reason).String(), Gate: policy.GateOutcome(c.Gate).String(), Predicted: classes[c.Predicted],
		Passes: c.Passes, Settled: c.Settled, Degenerate: c.Degenerate, Scores: make(map[string]*float64, len(c.Scores)),
		Risk: known(c.Risk), Propensity: known(c.Propensity), Reviewed: truth.Reviewed(c), Duplicate: d.Duplicate, Disputed: d.Disputed(),
		Want: d.Want.String(), Mature: w.mature, Receipt: d.sealed}
	for s, x := range c.Scores {
		l.Scores[decomp.Score(s).String()] = known(x)
	}
	if c.Group != 0 {
		group := strconv.FormatUint(c.Group, 16)
		l.Group = &group
	}
	for _, s := range c.Slices {
		if s != 0 {
			l.Slices = append(l.Slices, s)
		}
	}
	if d.Known {
		l.Truth, l.Kind = &classes[d.Class()], d.Kind.String()
	}
	for _, r := range d.Readings {
		l.Readings = append(l.Readings, LineReading{r.Source, r.Kind.String(), classes[r.Truth], r.SawModel, r.At, r.By, r.Reported})
	}
	return l
}
