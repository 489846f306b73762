package ledger

import (
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
)

// rowOf names what a row of a table is about.
type rowOf struct {
	Model   string    `json:"model"`
	Policy  string    `json:"policy"`
	Version string    `json:"version"`
	Stratum string    `json:"stratum"`
	Start   time.Time `json:"start"`
}

func (r *rowOf) cells() []string {
	return []string{r.Model, r.Policy, r.Version, r.Stratum, r.Start.Format(time.RFC3339)}
}

var rowColumns = []string{"model", "policy", "version", "stratum", "start"}

// issuedRow is what a process issued of one stratum in one period.
type issuedRow struct {
	rowOf
	Process   string  `json:"process"`
	Decisions uint64  `json:"decisions"`
	Eligible  uint64  `json:"eligible"`
	Receipts  uint64  `json:"receipts"`
	Reviews   uint64  `json:"reviews"`
	Due       uint64  `json:"due"`
	Expected  float64 `json:"expected"`
}

func (r *issuedRow) record() []string {
	return append(r.cells(), r.Process, count(r.Decisions), count(r.Eligible), count(r.Receipts), count(r.Reviews), count(r.Due),
		strconv.FormatFloat(r.Expected, 'f', -1, 64))
}

// overdueRow counts the outcomes of one stratum in one cohort that are due and have not come.
type overdueRow struct {
	rowOf
	End     time.Time `json:"end"` // of the cohort
	Since   time.Time `json:"since"`
	Due     uint64    `json:"due"`
	Overdue uint64    `json:"overdue"`
}

func (r *overdueRow) record() []string {
	return append(r.cells(), r.End.Format(time.RFC3339), r.Since.Format(time.RFC3339), count(r.Due), count(r.Overdue))
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// ExportIssued writes what daemons told that they issued: the decisions of an hour, process, policy,
// version and stratum, as they told it last.
func (l *Ledger) ExportIssued(w io.Writer, format Format, f Filter) error {
	out, err := newTable(w, format, append(rowColumns[:len(rowColumns):len(rowColumns)], "process", "decisions", "eligible", "receipts", "reviews", "due", "expected"))
	if err != nil {
		return err
	}
	if err := l.store.View(func(tx *store.Tx) error {
		runs, err := l.namesOf(tx)
		if err != nil {
			return err
		}
		return tx.IssuedRows(func(i *store.Issued) error {
			r := issuedRow{rowOf: runs[i.Promise], Process: i.Process, Decisions: i.Counts.Decisions, Eligible: i.Counts.Eligible, Receipts: i.Counts.Receipts,
				Reviews: i.Counts.Reviews, Due: i.Counts.Due, Expected: float64(i.Counts.Expected) / 1e6}
			if !f.admits(r.Model, i.Start) {
				return nil
			}
			r.Stratum, r.Start = i.Stratum.String(), time.UnixMicro(i.Start).UTC()
			return out.write(&r)
		})
	}); err != nil {
		return err
	}
	return out.flush()
}

// ExportOverdue writes of each policy, version, stratum and mature cohort how many outcomes are due and
// overdue, where any is.
func (l *Ledger) ExportOverdue(w io.Writer, format Format, f Filter) error {
	out, err := newTable(w, format, append(rowColumns[:len(rowColumns):len(rowColumns)], "end", "since", "due", "overdue"))
	if err != nil {
		return err
	}
	rows, err := l.overdue(f)
	if err != nil {
		return err
	}
	for i := range rows {
		if err := out.write(&rows[i]); err != nil {
			return err
		}
	}
	return out.flush()
}

func (l *Ledger) overdue(f Filter) (rows []overdueRow, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return nil, err
	}
	now := l.now()
	for _, name := range sortedKeys(l.models) {
		for _, r := range l.models[name].Runs {
			for _, c := range r.Cohorts {
				since := r.Maturity(c)
				if now.Before(since) || !f.admits(name, c.Start) {
					continue
				}
				for s := receipt.Deferred; s < receipt.Strata; s++ {
					if due, missing := c.Overdue(s); missing > 0 {
						rows = append(rows, overdueRow{rowOf: rowOf{name, hex.EncodeToString(r.Terms.Hash[:]), r.Name(), s.String(), time.UnixMicro(c.Start).UTC()},
							End: time.UnixMicro(c.Start + r.Period).UTC(), Since: since, Due: due, Overdue: missing})
					}
				}
			}
		}
	}
	return rows, nil
}

// namesOf returns the names of all policies and versions, by the numbers that the store gave them.
func (l *Ledger) namesOf(tx *store.Tx) (map[int64]rowOf, error) {
	all, err := tx.Promises()
	if err != nil {
		return nil, err
	}
	names := make(map[int64]rowOf, len(all))
	for i := range all {
		t := l.policies.get(all[i].Policy)
		if t == nil {
			return nil, fmt.Errorf("policy %x: %w", all[i].Policy, ErrPolicyUnknown)
		}
		run := promise.Run{Version: all[i].Name, VersionHash: all[i].Version}
		names[all[i].Number] = rowOf{Model: t.Policy.Name, Policy: hex.EncodeToString(t.Hash[:]), Version: run.Name()}
	}
	return names, nil
}

// Format names a form of export.
type Format string

// The formats.
const (
	CSV       Format = "csv"   // one line a decision, without its single readings and scores
	JSONLines Format = "jsonl" // one line a decision, with all that is known
)

// A table writes rows in a format.
type table struct {
	csv  *csv.Writer
	json *json.Encoder
}

func newTable(w io.Writer, format Format, columns []string) (*table, error) {
	switch format {
	case CSV:
		out := &table{csv: csv.NewWriter(w)}
		return out, out.csv.Write(columns)
	case JSONLines:
		return &table{json: json.NewEncoder(w)}, nil
	}
	return nil, fmt.Errorf("export: format %q, expected %s or %s", format, CSV, JSONLines)
}

func (t *table) write(row interface{ record() []string }) error {
	if t.csv != nil {
		return t.csv.Write(row.record())
	}
	return t.json.Encode(row)
}

func (t *table) flush() error {
	if t.csv == nil {
		return nil
	}
	t.csv.Flush()
	return t.csv.Error()
}
