package store

import (
	"bytes"
	"fmt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// Issued is what a process issued of one stratum in one hour of a promise.
type Issued struct {
	Promise, Cohort, Start int64
	Stratum                receipt.Stratum
	Process                string
	Counts                 Counts
	Settings               []byte
}

// Counts are absolute counts. The last two are sums in millionths, which are exact in any order.
type Counts struct {
	Decisions, Eligible, Receipts, Reviews, Due uint64
	Expected, DueWeight                         int64
}

func (c *Counts) columns() []any {
	return []any{c.Decisions, c.Eligible, c.Receipts, c.Reviews, c.Due, c.Expected, c.DueWeight}
}

const countColumns = "decisions, eligible, receipts, reviews, due, expected, due_weight"

func readCounts(r *row) Counts {
	return Counts{r.uint(), r.uint(), r.uint(), r.uint(), r.uint(), r.int(), r.int()}
}

// replace replaces what one process told in a sum.
func (c *Counts) replace(old, by *Counts) {
	c.Decisions += by.Decisions - old.Decisions
	c.Eligible += by.Eligible - old.Eligible
	c.Receipts += by.Receipts - old.Receipts
	c.Reviews += by.Reviews - old.Reviews
	c.Due += by.Due - old.Due
	c.Expected += by.Expected - old.Expected
	c.DueWeight += by.DueWeight - old.DueWeight
}

func issuedSum(i *Issued, settings int64) int64 {
	return tableIssued.sum(append([]any{i.Promise, i.Cohort, i.Start, uint64(i.Stratum), i.Process, settings}, i.Counts.columns()...)...)
}

func sumSum(promise, start int64, stratum receipt.Stratum, commits int64, c *Counts) int64 {
	return tableIssuedSum.sum(append([]any{promise, start, uint64(stratum), commits}, c.columns()...)...)
}

// PutIssued stores what a process told, and adds it to the sums of the cohort. Of two counts of one
// promise, start, stratum and process the one with more decisions stays. It reports whether it
// stored these.
func (tx *Tx) PutIssued(i *Issued) (changed bool, err error) {
	if i.Stratum >= receipt.Strata {
		return false, fmt.Errorf("stratum %d, expected 0 to %d", i.Stratum, receipt.Strata-1)
	}
	old := Issued{Promise: i.Promise, Cohort: i.Cohort, Start: i.Start, Stratum: i.Stratum, Process: i.Process}
	var before int64 // settings
	found, err := tx.one(func(r *row) {
		old.Counts, before = readCounts(r), r.int()
		r.check(issuedSum(&old, before))
	}, "SELECT "+countColumns+", settings, sum FROM issued WHERE promise = ? AND cohort = ? AND start = ? AND stratum = ? AND process = ?",
		i.Promise, i.Cohort, i.Start, int64(i.Stratum), i.Process)
	if err != nil || found && old.Counts.Decisions >= i.Counts.Decisions {
		return false, err
	}
	settings, err := tx.settings(i.Settings)
	if err != nil {
		return false, err
	}
	c := &i.Counts
	if _, err := tx.exec("INSERT INTO issued (promise, cohort, start, stratum, process, "+countColumns+", settings, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "+
		"ON CONFLICT (promise, cohort, start, stratum, process) DO UPDATE SET decisions = excluded.decisions, eligible = excluded.eligible, receipts = excluded.receipts, "+
		"reviews = excluded.reviews, due = excluded.due, expected = excluded.expected, due_weight = excluded.due_weight, settings = excluded.settings, sum = excluded.sum",
		i.Promise, i.Cohort, i.Start, int64(i.Stratum), i.Process, int64(c.Decisions), int64(c.Eligible), int64(c.Receipts), int64(c.Reviews),
		int64(c.Due), c.Expected, c.DueWeight, settings, issuedSum(i, settings)); err != nil {
		return false, err
	}
	if settings != before {
		if err := tx.apply(i.Promise, i.Cohort, before, -1); err != nil {
			return false, err
		}
		if err := tx.apply(i.Promise, i.Cohort, settings, 1); err != nil {
			return false, err
		}
	}
	return true, tx.addToSum(i, &old.Counts)
}

// addToSum changes the sums of a cohort by what one process told instead of old.
func (tx *Tx) addToSum(i *Issued, old *Counts) error {
	var c Counts
	if _, err := tx.one(func(r *row) {
		c = readCounts(r)
		commits := r.int()
		r.check(sumSum(i.Promise, i.Cohort, i.Stratum, commits, &c))
	}, "SELECT "+countColumns+", commits, sum FROM issued_sum WHERE promise = ? AND start = ? AND stratum = ?",
		i.Promise, i.Cohort, int64(i.Stratum)); err != nil {
		return err
	}
	c.replace(old, &i.Counts)
	_, err := tx.exec("INSERT INTO issued_sum (promise, start, stratum, "+countColumns+", commits, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "+
		"ON CONFLICT (promise, start, stratum) DO UPDATE SET decisions = excluded.decisions, eligible = excluded.eligible, receipts = excluded.receipts, "+
		"reviews = excluded.reviews, due = excluded.due, expected = excluded.expected, due_weight = excluded.due_weight, commits = excluded.commits, sum = excluded.sum",
		i.Promise, i.Cohort, int64(i.Stratum), int64(c.Decisions), int64(c.Eligible), int64(c.Receipts), int64(c.Reviews),
		int64(c.Due), c.Expected, c.DueWeight, tx.commit(), sumSum(i.Promise, i.Cohort, i.Stratum, tx.commit(), &c))
	return err
}

// settings returns the number of settings, which it stores if they are new; 0 for none.
func (tx *Tx) settings(body []byte) (number int64, err error) {
	if len(body) == 0 {
		return 0, nil
	}
	found, err := tx.one(func(r *row) {
		number = r.int()
		r.check(tableSettings.sum(number, body))
	}, "SELECT settings, sum FROM settings WHERE body = ?", body)
	if found || err != nil {
		return number, err
	}
	if _, err := tx.one(func(r *row) { number = r.int() }, "SELECT COALESCE(MAX(settings), 0) + 1 FROM settings"); err != nil {
		return 0, err
	}
	_, err = tx.exec("INSERT INTO settings (settings, body, sum) VALUES (?, ?, ?)", number, body, tableSettings.sum(number, body))
	return number, err
}

// apply counts how many issued rows of a cohort have settings.
func (tx *Tx) apply(promise, start, settings, by int64) error {
	if settings == 0 {
		return nil
	}
	var n int64
	if _, err := tx.one(func(r *row) {
		n = r.int()
		r.check(tableApplied.sum(promise, start, settings, n))
	}, "SELECT issued, sum FROM applied WHERE promise = ? AND start = ? AND settings = ?", promise, start, settings); err != nil {
		return err
	}
	if n += by; n == 0 {
		_, err := tx.exec("DELETE FROM applied WHERE promise = ? AND start = ? AND settings = ?", promise, start, settings)
		return err
	}
	_, err := tx.exec("INSERT INTO applied (promise, start, settings, issued, sum) VALUES (?, ?, ?, ?, ?) "+
		"ON CONFLICT (promise, start, settings) DO UPDATE SET issued = excluded.issued, sum = excluded.sum",
		promise, start, settings, n, tableApplied.sum(promise, start, settings, n))
	return err
}

// A Sum is what all processes issued in a cohort.
type Sum struct {
	Promise, Start int64
	Strata         [receipt.Strata]Counts
	Settings       [][]byte // the distinct ones
}

// Sums returns the sums that a commit later than since changed, by promise and start.
func (tx *Tx) Sums(since uint64) (all []Sum, err error) {
	err = tx.query(func(r *row) error {
		all = append(all, Sum{Promise: r.int(), Start: r.int()})
		return nil
	}, "SELECT DISTINCT promise, start FROM issued_sum WHERE commits > ? ORDER BY promise, start", int64(since))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := tx.readSum(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (tx *Tx) readSum(s *Sum) error {
	if err := tx.query(func(r *row) error {
		stratum := r.int()
		if stratum < 0 || stratum >= int64(receipt.Strata) {
			return errRow
		}
		c := &s.Strata[stratum]
		*c = readCounts(r)
		commits := r.int()
		r.check(sumSum(s.Promise, s.Start, receipt.Stratum(stratum), commits, c))
		return nil
	}, "SELECT stratum, "+countColumns+", commits, sum FROM issued_sum WHERE promise = ? AND start = ?", s.Promise, s.Start); err != nil {
		return err
	}
	var numbers []int64
	if err := tx.query(func(r *row) error {
		number, n := r.int(), r.int()
		r.check(tableApplied.sum(s.Promise, s.Start, number, n))
		numbers = append(numbers, number)
		return nil
	}, "SELECT settings, issued, sum FROM applied WHERE promise = ? AND start = ? ORDER BY settings", s.Promise, s.Start); err != nil {
		return err
	}
	for _, number := range numbers {
		body, err := tx.settingsBody(number)
		if err != nil {
			return err
		}
		s.Settings = append(s.Settings, body)
	}
	return nil
}

func (tx *Tx) settingsBody(number int64) (body []byte, err error) {
	if number == 0 {
		return nil, nil
	}
	found, err := tx.one(func(r *row) {
		body = r.bytes()
		r.check(tableSettings.sum(number, body))
	}, "SELECT body, sum FROM settings WHERE settings = ?", number)
	if err == nil && !found {
		err = errRow
	}
	return body, err
}

// IssuedRows calls each with all that was told, by promise, cohort, start, stratum and process. The
// row is valid until each returns.
func (tx *Tx) IssuedRows(each func(i *Issued) error) error {
	bodies := map[int64][]byte{0: nil}
	var i Issued
	return tx.query(func(r *row) error {
		i = Issued{Promise: r.int(), Cohort: r.int(), Start: r.int(), Stratum: receipt.Stratum(r.int()), Process: r.text(), Counts: readCounts(r)}
		settings := r.int()
		if r.check(issuedSum(&i, settings)); r.damaged {
			return errRow
		}
		body, ok := bodies[settings]
		if !ok {
			var err error
			if body, err = tx.settingsBody(settings); err != nil {
				return err
			}
			bodies[settings] = body
		}
		i.Settings = bytes.Clone(body)
		return each(&i)
	}, "SELECT promise, cohort, start, stratum, process, "+countColumns+", settings, sum FROM issued ORDER BY promise, cohort, start, stratum, process")
}
