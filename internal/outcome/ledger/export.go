package ledger

import (
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// A Filter chooses decisions. Zero fields choose all.
type Filter struct {
	// Policy is a policy hash.
	Policy [32]byte
	// Version is a model version's text; nil for all.
	Version *string
	Stratum receipt.Stratum
	// From and Before bound the decision time.
	From, Before time.Time
	// Wanted chooses decisions that want a further reading.
	Wanted bool

	sealed bool // read the sealed receipts too
}

// A Decided is a decision with what its policy makes of it.
type Decided struct {
	truth.Decision
	// Model, Version and Classes come from the policy; Version is a hash in hex until told.
	Model, Version string
	Classes        []string
	// Reviewed says that the outcome has a weight: the inverse of the propensity.
	Reviewed bool
	// Truth is the position of the true class as the readings have it, -1 for none. Disputed says that
	// readers disagree whether it is critical.
	Truth    int
	Disputed bool
	Kind     truth.Kind // how the truth was found
	Want     truth.Want
	// Mature says that the cohort's outcomes are all due.
	Mature bool

	sealed []byte
}

// Walk calls each with the decisions that a filter chooses: by model, policy and version, and in each in
// the order of decision time and ID. It reads in pieces, so that it may take as long as it likes;
// decisions that come meanwhile may be left out. It stops at the first error of each, and returns it. What
// each is given is its own.
func (l *Ledger) Walk(f Filter, each func(*Decided) error) error {
	l.mu.Lock()
	_, err := l.compute()
	var chosen []*walk
	for _, name := range sortedKeys(l.models) {
		for _, r := range l.models[name].Runs {
			if f.Policy != [32]byte{} && r.Terms.Hash != f.Policy || f.Version != nil && r.VersionHash != receipt.VersionHash(*f.Version) {
				continue
			}
			w := &walk{l: l, filter: &f, number: r.Number, terms: r.Terms, version: r.Name()}
			for _, c := range r.Cohorts {
				w.cohorts = append(w.cohorts, span{c.Start, c.Start + r.Period, r.Maturity(c)})
			}
			chosen = append(chosen, w)
		}
	}
	l.mu.Unlock()
	for _, w := range chosen {
		if err == nil {
			err = w.do(each)
		}
	}
	return err
}

// A walk goes through the decisions of one policy and version.
type walk struct {
	l       *Ledger
	filter  *Filter
	number  int64
	terms   *truth.Terms
	version string
	cohorts []span
}

// A span is when a cohort begins and ends, in microseconds, and when its outcomes are due.
type span struct {
	from, before int64
	due          time.Time
}

// errPiece ends a piece.
var errPiece = errors.New("piece")

func (w *walk) do(each func(*Decided) error) error {
	now := w.l.now()
	for _, c := range w.cohorts {
		from, before := c.from, c.before
		if !w.filter.From.IsZero() {
			from = max(from, w.filter.From.UnixMicro())
		}
		if !w.filter.Before.IsZero() {
			before = min(before, w.filter.Before.UnixMicro())
		}
		if from >= before {
			continue
		}
		if err := w.cohort(from, before, !now.Before(c.due), each); err != nil {
			return err
		}
	}
	return nil
}

// cohort calls each with the decisions of a cohort, piece by piece.
func (w *walk) cohort(from, before int64, mature bool, each func(*Decided) error) error {
	const most = 1000
	var last store.Key
	for more := true; more; {
		var piece []*Decided
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
				one := w.decided(d, mature)
				last, from = key, key.Time
				if one == nil {
					return nil
				}
				piece = append(piece, one)
				if !w.filter.sealed {
					return nil
				}
				var err error
				one.sealed, err = tx.Sealed(key)
				return err
			})
		})
		if err != nil && !errors.Is(err, errPiece) {
			return err
		}
		for _, d := range piece {
			if err := each(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// decided returns a decision with what its policy makes of it; nil if the filter leaves it out.
func (w *walk) decided(d *truth.Decision, mature bool) *Decided {
	f, t := w.filter, w.terms
	if f.Stratum != 0 && d.Receipt.Stratum != f.Stratum {
		return nil
	}
	found := t.Find(d, truth.EndOfTime)
	if f.Wanted && found.Want == truth.WantNone {
		return nil
	}
	own := *d
	own.Readings = slices.Clone(d.Readings)
	one := &Decided{Decision: own, Model: t.Policy.Name, Version: w.version, Classes: t.Policy.Classes, Reviewed: truth.Reviewed(&d.Receipt),
		Truth: -1, Disputed: found.Disputed(), Kind: found.Kind, Want: found.Want, Mature: mature}
	if found.Known {
		one.Truth = found.Class()
	}
	return one
}

// Format names a form of export.
type Format string

// The formats.
const (
	CSV       Format = "csv"   // one line a decision, without its single readings and scores
	JSONLines Format = "jsonl" // one line a decision, with all that is known
)

// Export writes the decisions that a filter chooses.
func (l *Ledger) Export(w io.Writer, format Format, f Filter) error {
	switch format {
	case CSV:
		out := csv.NewWriter(w)
		if err := out.Write(columns); err != nil {
			return err
		}
		err := l.Walk(f, func(d *Decided) error { return out.Write(d.row()) })
		out.Flush()
		if err != nil {
			return err
		}
		return out.Error()
	case JSONLines:
		f.sealed = true
		out := json.NewEncoder(w)
		return l.Walk(f, func(d *Decided) error { return out.Encode(d.line()) })
	}
	return fmt.Errorf("export: format %q, expected %s or %s", format, CSV, JSONLines)
}

var columns = []string{"id", "model", "policy", "version", "time", "stratum", "action", "reason", "predicted", "risk", "propensity",
	"reviewed", "duplicate", "group", "truth", "kind", "disputed", "want", "readings", "first_reading", "mature"}

// row returns the record as CSV. Cells of unknown values are empty.
func (d *Decided) row() []string {
	l := d.line()
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

// line is a record in JSON. What is unknown is null.
type line struct {
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
	Readings   []lineReading       `json:"readings"`
	Receipt    []byte              `json:"receipt"` // sealed
}

type lineReading struct {
	Source   string    `json:"source"`
	Kind     string    `json:"kind"`
	Truth    string    `json:"truth"`
	SawModel bool      `json:"saw_model"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reported time.Time `json:"reported"`
}

func (d *Decided) line() *line {
	c := &d.Receipt
	known := func(x float32) *float64 {
		if v := float64(x); !math.IsNaN(v) && !math.IsInf(v, 0) {
			return &v
		}
		return nil
	}
	l := &line{ID: hex.EncodeToString(d.ID[:]), Model: d.Model, Policy: hex.EncodeToString(c.Policy[:]), Version: d.Version,
		Time: time.UnixMicro(c.Time).UTC(), Stratum: c.Stratum.String(), Action: policy.Action(c.Action).String(),
		Reason: policy.Reason(c.Reason).String(), Gate: policy.GateOutcome(c.Gate).String(), Predicted: d.class(int(c.Predicted)),
		Passes: c.Passes, Settled: c.Settled, Degenerate: c.Degenerate, Scores: make(map[string]*float64, len(c.Scores)),
		Risk: known(c.Risk), Propensity: known(c.Propensity), Reviewed: d.Reviewed, Duplicate: d.Duplicate, Disputed: d.Disputed,
		Want: d.Want.String(), Mature: d.Mature, Receipt: d.sealed}
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
	if d.Truth >= 0 {
		truth := d.class(d.Truth)
		l.Truth, l.Kind = &truth, d.Kind.String()
	}
	for _, s := range d.Readings {
		l.Readings = append(l.Readings, lineReading{s.Source, s.Kind.String(), d.class(s.Truth), s.SawModel, s.At, s.By, s.Reported})
	}
	return l
}

func (d *Decided) class(k int) string {
	if k >= 0 && k < len(d.Classes) {
		return d.Classes[k]
	}
	return ""
}
