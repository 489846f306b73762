package store

import "database/sql/driver"

// A Cohort is what is kept of the decisions of one period of a promise.
type Cohort struct {
	Promise, Start int64
	Changes        uint64 // counts Touches
	Counted        uint64 // the Changes of which Count is
	Count          []byte
	Taken          bool
	Bets           []byte
	Point          []byte
}

// A cohort is the row that other rows know a Cohort by.
type cohort struct {
	number         int64 // 0 for one that is not stored
	promise, start int64
	changes        uint64
	commits        int64 // the commit that touched or put it last
}

const cohortColumns = "cohort, promise, start, changes, commits, sum"

func (c *cohort) sum() int64 {
	return tableCohort.sum(c.number, c.promise, c.start, c.changes, c.commits)
}

func readCohort(r *row) (c cohort) {
	c = cohort{r.int(), r.int(), r.int(), r.uint(), r.int()}
	r.check(c.sum())
	return c
}

// cohort returns the cohort of a promise that begins at a time.
func (tx *Tx) cohort(promise, start int64) (cohort, error) {
	c := cohort{promise: promise, start: start}
	_, err := tx.one(func(r *row) { c = readCohort(r) }, "SELECT "+cohortColumns+" FROM cohort WHERE promise = ? AND start = ?", promise, start)
	return c, err
}

// eachCohort calls each with some cohorts.
func (tx *Tx) eachCohort(each func(c *cohort) error, where string, args ...driver.Value) error {
	var all []cohort
	err := tx.query(func(r *row) error {
		all = append(all, readCohort(r))
		return nil
	}, "SELECT "+cohortColumns+" FROM cohort WHERE "+where, args...)
	for i := range all {
		if err == nil {
			err = each(&all[i])
		}
	}
	return err
}

// putCohort stores a cohort, and that this commit touched it.
func (tx *Tx) putCohort(c *cohort) error {
	if c.number == 0 {
		if _, err := tx.one(func(r *row) { c.number = r.int() }, "SELECT COALESCE(MAX(cohort), 0) + 1 FROM cohort"); err != nil {
			return err
		}
	}
	c.commits = tx.commit()
	_, err := tx.exec("INSERT INTO cohort ("+cohortColumns+") VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (cohort) DO UPDATE SET "+
		"changes = excluded.changes, commits = excluded.commits, sum = excluded.sum",
		c.number, c.promise, c.start, int64(c.changes), c.commits, c.sum())
	return err
}

// Touch notes that the decisions of a cohort changed, and makes the cohort if it is new.
func (tx *Tx) Touch(promise, start int64) error {
	c, err := tx.cohort(promise, start)
	if err != nil {
		return err
	}
	c.changes++
	return tx.putCohort(&c)
}

// Cohorts returns the cohorts that a commit later than since touched or put, by promise and start.
func (tx *Tx) Cohorts(since uint64) (all []Cohort, err error) {
	err = tx.eachCohort(func(c *cohort) error {
		all = append(all, Cohort{Promise: c.promise, Start: c.start, Changes: c.changes})
		return nil
	}, "commits > ? ORDER BY promise, start", int64(since))
	if err != nil {
		return nil, err
	}
	for i := range all {
		c := &all[i]
		if c.Counted, c.Count, err = tx.count(c.Promise, c.Start); err != nil {
			return nil, err
		}
		if c.Taken, c.Bets, c.Point, err = tx.taken(c.Promise, c.Start); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (tx *Tx) count(promise, start int64) (counted uint64, body []byte, err error) {
	_, err = tx.one(func(r *row) {
		counted, body = r.uint(), r.bytes()
		r.check(tableCount.sum(promise, start, counted, body))
	}, "SELECT counted, body, sum FROM count WHERE promise = ? AND start = ?", promise, start)
	return counted, body, err
}

func (tx *Tx) taken(promise, start int64) (taken bool, bets, point []byte, err error) {
	_, err = tx.one(func(r *row) {
		taken, bets, point = r.bool(), r.bytes(), r.bytes()
		r.check(tableTaken.sum(promise, start, taken, bets, point))
	}, "SELECT taken, bets, point, sum FROM taken WHERE promise = ? AND start = ?", promise, start)
	return taken, bets, point, err
}

// PutCount stores what was counted of a cohort while it was touched so often. Where it was touched
// since, it does nothing.
func (tx *Tx) PutCount(promise, start int64, changes uint64, count []byte) error {
	c, err := tx.cohort(promise, start)
	if err != nil || c.changes != changes {
		return err
	}
	if err := tx.putCohort(&c); err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO count (promise, start, counted, body, sum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (promise, start) DO UPDATE SET "+
		"counted = excluded.counted, body = excluded.body, sum = excluded.sum",
		promise, start, int64(changes), count, tableCount.sum(promise, start, changes, count))
	return err
}

// PutTaken notes that evidence took a cohort, with what it bet and where it came to.
func (tx *Tx) PutTaken(promise, start int64, bets, point []byte) error {
	return tx.putTaken(promise, start, true, bets, point)
}

// PutPoint stores where a replay of the evidence came to after a cohort.
func (tx *Tx) PutPoint(promise, start int64, point []byte) error {
	taken, bets, _, err := tx.taken(promise, start)
	if err != nil {
		return err
	}
	return tx.putTaken(promise, start, taken, bets, point)
}

func (tx *Tx) putTaken(promise, start int64, taken bool, bets, point []byte) error {
	c, err := tx.cohort(promise, start)
	if err != nil {
		return err
	}
	if err := tx.putCohort(&c); err != nil {
		return err
	}
	number := int64(0)
	if taken {
		number = 1
	}
	_, err = tx.exec("INSERT INTO taken (promise, start, taken, bets, point, sum) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (promise, start) DO UPDATE SET "+
		"taken = excluded.taken, bets = excluded.bets, point = excluded.point, sum = excluded.sum",
		promise, start, number, bets, point, tableTaken.sum(promise, start, taken, bets, point))
	return err
}
