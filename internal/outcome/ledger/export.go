package ledger

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// A Filter chooses records. Zero fields choose all.
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
}

// A Decided is a record with what its policy makes of it.
type Decided struct {
	Record
	// Model, Version and Classes come from the policy; Version is a hash in hex until told.
	Model, Version string
	Classes        []string
	// Reviewed says that the outcome has a weight: the inverse of the propensity.
	Reviewed bool
	// Truth is the position of the true class as the readings have it, -1 for none. Disputed says that
	// readers disagree whether it is critical.
	Truth    int
	Disputed bool
	Kind     Kind // how the truth was found
	Want     Want
	// Mature says that the cohort's outcomes are all due.
	Mature bool
}

// Walk calls each with the records that a filter chooses: by policy and version, and in each in the
// order of decision time and ID. It reads in pieces, so that it may take as long as it likes; records
// that come meanwhile may be left out. It stops at the first error of each, and returns it. What each
// is given is its own.
func (l *Ledger) Walk(f Filter, each func(*Decided) error) error {
	if err := l.inbox.merge(); err != nil {
		return err
	}
	var keys []promiseKey
	err := l.main.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketPromises).ForEachBucket(func(name []byte) error {
			key := promiseKeyOf(name)
			if f.Policy != [32]byte{} && key.policy != f.Policy || f.Version != nil && key.version != receipt.VersionHash(*f.Version) {
				return nil
			}
			keys = append(keys, key)
			return nil
		})
	})
	for _, key := range keys {
		if err == nil {
			err = l.walk(key, &f, each)
		}
	}
	return err
}

// walk calls each with the records of one promise that a filter chooses.
func (st *store) walk(key promiseKey, f *Filter, each func(*Decided) error) error {
	t := st.policies.get(key.policy)
	if t == nil {
		return fmt.Errorf("policy %x: %w", key.policy, ErrPolicyUnknown)
	}
	from := []byte{}
	if !f.From.IsZero() {
		from = appendTime(nil, f.From.UnixMicro())
	}
	now := st.now()
	for from != nil {
		var piece []*Decided
		err := st.main.View(func(tx *bolt.Tx) (err error) {
			piece, from, err = readPiece(tx, key, t, from, f, now)
			return err
		})
		if err != nil {
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

// readPiece reads some records from a key on, and returns the key to go on from; nil at the end.
func readPiece(tx *bolt.Tx, key promiseKey, t *terms, from []byte, f *Filter, now time.Time) ([]*Decided, []byte, error) {
	const most = 1000
	b := promiseBucket(tx, key)
	p := promise{key: key}
	if err := json.Unmarshal(b.Get(keyInfo), &p.info); err != nil {
		return nil, nil, err
	}
	var (
		piece  []*Decided
		cohort *cohortState
		due    time.Time
	)
	c := b.Bucket(bucketRecords).Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		if !f.Before.IsZero() && timeOf(k) >= f.Before.UnixMicro() {
			return piece, nil, nil
		}
		if len(piece) == most {
			return piece, bytes.Clone(k), nil
		}
		r, err := decodeRecord(key, k, v)
		if err != nil {
			return nil, nil, err
		}
		if f.Stratum != 0 && r.Receipt.Stratum != f.Stratum {
			continue
		}
		if start := p.info.grid().start(r.Receipt.Time); cohort == nil || cohort.Start != start {
			cohort = &cohortState{}
			if cohort.cohort, err = readCohort(b, start); err != nil {
				return nil, nil, err
			}
			if cohort.sums, err = readSums(b, start); err != nil {
				return nil, nil, err
			}
			due = p.maturity(t, cohort)
		}
		found := t.find(r, endOfTime)
		if f.Wanted && found.want == WantNone {
			continue
		}
		d := &Decided{Record: *r, Model: t.policy.Name, Version: p.version(), Classes: t.policy.Classes, Reviewed: reviewed(&r.Receipt),
			Truth: -1, Disputed: found.disputed(), Kind: found.kind, Want: found.want, Mature: !now.Before(due)}
		if found.known {
			d.Truth = found.class()
		}
		piece = append(piece, d)
	}
	return piece, nil, nil
}

// Format names a form of export.
type Format string

// The formats.
const (
	CSV       Format = "csv"   // one line a decision, without its single readings and scores
	JSONLines Format = "jsonl" // one line a decision, with all that is known
)

// Export writes the records that a filter chooses.
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
		Want: d.Want.String(), Mature: d.Mature}
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
