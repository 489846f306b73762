package store

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

// putCohort stores the changes of a cohort, and that this commit touched it.
func (tx *Tx) putCohort(promise, start int64, changes uint64) error {
	_, err := tx.exec("INSERT INTO cohort (promise, start, changes, commits, sum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (promise, start) DO UPDATE SET "+
		"changes = excluded.changes, commits = excluded.commits, sum = excluded.sum",
		promise, start, int64(changes), tx.commit(), tableCohort.sum(promise, start, changes, tx.commit()))
	return err
}

// changes returns how often a cohort was touched.
func (tx *Tx) changes(promise, start int64) (changes uint64, err error) {
	_, err = tx.one(func(r *row) {
		changes = r.uint()
		commits := r.int()
		r.check(tableCohort.sum(promise, start, changes, commits))
	}, "SELECT changes, commits, sum FROM cohort WHERE promise = ? AND start = ?", promise, start)
	return changes, err
}

// Touch notes that the decisions of a cohort changed, and makes the cohort if it is new.
func (tx *Tx) Touch(promise, start int64) error {
	changes, err := tx.changes(promise, start)
	if err != nil {
		return err
	}
	return tx.putCohort(promise, start, changes+1)
}

// Cohorts returns the cohorts that a commit later than since touched or put, by promise and start.
func (tx *Tx) Cohorts(since uint64) (all []Cohort, err error) {
	err = tx.query(func(r *row) error {
		c := Cohort{Promise: r.int(), Start: r.int(), Changes: r.uint()}
		commits := r.int()
		if r.check(tableCohort.sum(c.Promise, c.Start, c.Changes, commits)); r.damaged {
			return errRow
		}
		all = append(all, c)
		return nil
	}, "SELECT promise, start, changes, commits, sum FROM cohort WHERE commits > ? ORDER BY promise, start", int64(since))
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
	now, err := tx.changes(promise, start)
	if err != nil || now != changes {
		return err
	}
	if err := tx.putCohort(promise, start, changes); err != nil {
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
	changes, err := tx.changes(promise, start)
	if err != nil {
		return err
	}
	if err := tx.putCohort(promise, start, changes); err != nil {
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
