package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// Checked counts what Verify looked at.
type Checked struct {
	Decisions  uint64
	Readings   uint64
	Sealed     uint64 // decisions whose seal was compared, since its key is known
	UnknownKey uint64 // decisions whose seal was not, since its key is not
	Rows       uint64 // of the other tables
	Faults     uint64
}

// Verify reads the whole ledger, beside Updates, and calls each with every fault that it finds: in
// the structure of the file, in the checksum of a row, between a sealed receipt and what is stored
// of it, and between the sums of a cohort and what was issued. It does not look at bytes that hold
// nothing.
//
// seal opens a sealed receipt; receipt.ErrUnknownKey says that its key is not at hand; a nil seal
// leaves the receipts sealed. The error says that Verify could not go on.
func (s *Store) Verify(ctx context.Context, seal func(sealed []byte) (receipt.Receipt, receipt.ID, error), each func(fault string)) (Checked, error) {
	v := &verifier{store: s, ctx: ctx, seal: seal, each: each}
	for _, part := range []func() error{v.structure, v.decisions, v.cohorts, v.issued, v.others} {
		if err := part(); err != nil {
			if !errors.Is(err, ErrDamaged) {
				return v.checked, err
			}
			v.fault("%v", err)
		}
	}
	return v.checked, nil
}

type verifier struct {
	store   *Store
	ctx     context.Context
	seal    func([]byte) (receipt.Receipt, receipt.ID, error)
	each    func(string)
	checked Checked
	last    cohort // of the last decision
}

func (v *verifier) view(f func(tx *Tx) error) error {
	return v.store.View(func(tx *Tx) error {
		tx.ctx = v.ctx
		return f(tx)
	})
}

func (v *verifier) fault(format string, args ...any) {
	v.checked.Faults++
	v.each(fmt.Sprintf(format, args...))
}

// structure has SQLite look at the trees and the indices.
func (v *verifier) structure() error {
	return v.view(func(tx *Tx) error {
		return tx.query(func(r *row) error {
			if said := r.text(); said != "ok" {
				v.fault("file: %s", said)
			}
			return nil
		}, "PRAGMA integrity_check(1000)")
	})
}

// decisions reads some decisions in each View, so that the log can begin anew between them.
func (v *verifier) decisions() error {
	const some = 50_000
	last := int64(math.MinInt64)
	for read := some; read == some; {
		read = 0
		if err := v.view(func(tx *Tx) error {
			var d truth.Decision
			return tx.query(func(r *row) error {
				read++
				v.checked.Decisions++
				last, _ = r.values[0].(int64)
				v.decision(tx, r, &d)
				r.damaged = false
				return nil
			}, "SELECT "+decisionColumns+", sealed FROM decision WHERE decision > ? ORDER BY decision LIMIT ?", last, int64(some))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) decision(tx *Tx, r *row, d *truth.Decision) {
	s, err := tx.readDecision(r, d)
	name := func() string {
		return fmt.Sprintf("decision %x of %s", d.ID, time.UnixMicro(d.Receipt.Time).UTC().Format(time.RFC3339))
	}
	if err != nil {
		v.fault("%s: %v", name(), err)
		return
	}
	sealed := r.bytes()
	v.checked.Readings += uint64(len(d.Readings))
	if sealedSum(sealed) != s.sealed {
		v.fault("%s: its sealed receipt does not have its checksum", name())
	}
	if number := s.decision >> positionBits; v.last.number != number {
		v.last = cohort{}
		if err := tx.eachCohort(func(c *cohort) error { v.last = *c; return nil }, "cohort = ?", number); err != nil {
			v.fault("%s: its cohort: %v", name(), err)
			return
		}
	}
	if v.last.promise != s.promise.Number || v.last.start != s.promise.startOf(d.Receipt.Time) {
		v.fault("%s: it lies in another cohort", name())
	}
	v.open(name, sealed, d)
}

// open compares a sealed receipt with what is stored of it.
func (v *verifier) open(name func() string, sealed []byte, d *truth.Decision) {
	if v.seal == nil || len(sealed) == 0 {
		return
	}
	r, id, err := v.seal(sealed)
	switch {
	case errors.Is(err, receipt.ErrUnknownKey):
		v.checked.UnknownKey++
	case err != nil:
		v.fault("%s: its sealed receipt: %v", name(), err)
	case id != d.ID || !same(r, d.Receipt):
		v.fault("%s: its sealed receipt says otherwise than what is stored of it", name())
	default:
		v.checked.Sealed++
	}
}

// same compares receipts bit for bit, so that NaN equals itself.
func same(a, b receipt.Receipt) bool {
	for i := range a.Scores {
		if math.Float32bits(a.Scores[i]) != math.Float32bits(b.Scores[i]) {
			return false
		}
		a.Scores[i], b.Scores[i] = 0, 0
	}
	if math.Float32bits(a.Risk) != math.Float32bits(b.Risk) {
		return false
	}
	a.Risk, b.Risk = 0, 0
	return a == b
}

// rows calls read with every row of a query. A row that read finds damaged is a fault under the
// name that read returns.
func (v *verifier) rows(tx *Tx, table string, read func(r *row) (name string), query string) error {
	return tx.query(func(r *row) error {
		v.checked.Rows++
		if name := read(r); r.damaged {
			v.fault("%s: a row of %s does not have its checksum", name, table)
			r.damaged = false
		}
		return nil
	}, query)
}

func (v *verifier) cohorts() error {
	return v.view(func(tx *Tx) error {
		if err := v.rows(tx, "cohort", func(r *row) string {
			c := readCohort(r)
			return cohortName(c.promise, c.start)
		}, "SELECT "+cohortColumns+" FROM cohort"); err != nil {
			return err
		}
		if err := v.rows(tx, "count", func(r *row) string {
			promise, start, counted, body := r.int(), r.int(), r.uint(), r.bytes()
			r.check(tableCount.sum(promise, start, counted, body))
			return cohortName(promise, start)
		}, "SELECT promise, start, counted, body, sum FROM count"); err != nil {
			return err
		}
		return v.rows(tx, "taken", func(r *row) string {
			promise, start, taken, bets, point := r.int(), r.int(), r.bool(), r.bytes(), r.bytes()
			r.check(tableTaken.sum(promise, start, taken, bets, point))
			return cohortName(promise, start)
		}, "SELECT promise, start, taken, bets, point, sum FROM taken")
	})
}

func cohortName(promise, start int64) string {
	return fmt.Sprintf("cohort %d of promise %d", start, promise)
}

type (
	stratumSum struct {
		promise, start int64
		stratum        receipt.Stratum
	}
	settingsCount struct{ promise, start, settings int64 }
)

// issued adds up what was issued, and compares it with the sums.
func (v *verifier) issued() error {
	sums, applied := make(map[stratumSum]Counts), make(map[settingsCount]int64)
	return v.view(func(tx *Tx) error {
		if err := v.rows(tx, "issued", func(r *row) string {
			i := Issued{Promise: r.int(), Cohort: r.int(), Start: r.int(), Stratum: receipt.Stratum(r.int()), Process: r.text(), Counts: readCounts(r)}
			settings := r.int()
			r.check(issuedSum(&i, settings))
			at := stratumSum{i.Promise, i.Cohort, i.Stratum}
			c := sums[at]
			c.replace(&Counts{}, &i.Counts)
			sums[at] = c
			if settings != 0 {
				applied[settingsCount{i.Promise, i.Cohort, settings}]++
			}
			return cohortName(i.Promise, i.Cohort)
		}, "SELECT promise, cohort, start, stratum, process, "+countColumns+", settings, sum FROM issued"); err != nil {
			return err
		}
		return errors.Join(v.sums(tx, sums), v.applied(tx, applied))
	})
}

// sums compares the stored sums with those of what was issued.
func (v *verifier) sums(tx *Tx, want map[stratumSum]Counts) error {
	err := v.rows(tx, "issued_sum", func(r *row) string {
		at := stratumSum{r.int(), r.int(), receipt.Stratum(r.int())}
		c := readCounts(r)
		commits := r.int()
		r.check(sumSum(at.promise, at.start, at.stratum, commits, &c))
		if !r.damaged && c != want[at] {
			v.fault("%s: its sums are not those of what was issued", cohortName(at.promise, at.start))
		}
		delete(want, at)
		return cohortName(at.promise, at.start)
	}, "SELECT promise, start, stratum, "+countColumns+", commits, sum FROM issued_sum")
	for at := range want {
		v.fault("%s: what was issued has no sums", cohortName(at.promise, at.start))
	}
	return err
}

// applied compares how often settings were counted with what was issued.
func (v *verifier) applied(tx *Tx, want map[settingsCount]int64) error {
	err := v.rows(tx, "applied", func(r *row) string {
		at := settingsCount{r.int(), r.int(), r.int()}
		n := r.int()
		r.check(tableApplied.sum(at.promise, at.start, at.settings, n))
		if !r.damaged && n != want[at] {
			v.fault("%s: its settings are not those of what was issued", cohortName(at.promise, at.start))
		}
		delete(want, at)
		return cohortName(at.promise, at.start)
	}, "SELECT promise, start, settings, issued, sum FROM applied")
	for at := range want {
		v.fault("%s: what was issued has no settings", cohortName(at.promise, at.start))
	}
	return err
}

// others checks the small tables.
func (v *verifier) others() error {
	type check struct {
		table, query string
		read         func(r *row) string
	}
	for _, c := range []check{
		{"identity", "SELECT id, generation, branch, commits, sum FROM identity", func(r *row) string {
			r.check(tableIdentity.sum(r.text(), r.uint(), r.text(), r.uint()))
			return "ledger"
		}},
		{"meta", "SELECT name, value, sum FROM meta", func(r *row) string {
			name := r.text()
			r.check(tableMeta.sum(name, r.text()))
			return name
		}},
		{"policy", "SELECT hash, body, sum FROM policy", func(r *row) string {
			hash := r.bytes()
			r.check(tablePolicy.sum(hash, r.bytes()))
			return fmt.Sprintf("policy %x", hash)
		}},
		{"promise", "SELECT " + promiseColumns + " FROM promise", func(r *row) string {
			return fmt.Sprintf("promise %d", readPromise(r).Number)
		}},
		{"settings", "SELECT settings, body, sum FROM settings", func(r *row) string {
			number := r.int()
			r.check(tableSettings.sum(number, r.bytes()))
			return fmt.Sprintf("settings %d", number)
		}},
		{"sealer", "SELECT " + sealerColumns + " FROM sealer", func(r *row) string {
			return fmt.Sprintf("sealer %x", readSealer(r).name)
		}},
		{"evidence", "SELECT model, epoch, body, sum FROM evidence", func(r *row) string {
			model := r.text()
			r.check(tableEvidence.sum(model, r.uint(), r.bytes()))
			return fmt.Sprintf("model %q", model)
		}},
		{"trail", "SELECT event, body, sum FROM trail", func(r *row) string {
			event := r.int()
			r.check(tableTrail.sum(event, r.bytes()))
			return fmt.Sprintf("event %d", event)
		}},
	} {
		if err := v.view(func(tx *Tx) error { return v.rows(tx, c.table, c.read, c.query) }); err != nil {
			return err
		}
	}
	return nil
}
