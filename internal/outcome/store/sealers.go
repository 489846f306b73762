package store

import "github.com/ckd-project/ckd/internal/outcome/receipt"

// A sealer is a row of its table: the number by which other rows know it, and what was told of it.
type sealer struct {
	number  int64
	name    receipt.SealerID
	through uint64
	key     string
	at      int64
	commits int64 // of the commit that told it last; 0 for none
}

const sealerColumns = "sealer, name, through, receipt_key, at, commits, sum"

func (s *sealer) sum() int64 {
	return tableSealer.sum(s.number, s.name[:], s.through, s.key, s.at, s.commits)
}

func readSealer(r *row) (s sealer) {
	s.number = r.int()
	name := r.bytes()
	r.damaged = r.damaged || len(name) != len(s.name)
	copy(s.name[:], name)
	s.through, s.key, s.at, s.commits = r.uint(), r.text(), r.int(), r.int()
	r.check(s.sum())
	return s
}

func (tx *Tx) putSealer(s *sealer) error {
	_, err := tx.exec("INSERT INTO sealer ("+sealerColumns+") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sealer) DO UPDATE SET "+
		"through = excluded.through, receipt_key = excluded.receipt_key, at = excluded.at, commits = excluded.commits, sum = excluded.sum",
		s.number, s.name[:], int64(s.through), s.key, s.at, s.commits, s.sum())
	return err
}

// sealers are those that a transaction asked for, by name and by number.
type sealers struct {
	numbers map[receipt.SealerID]int64
	names   map[int64]receipt.SealerID
}

func (s *sealers) add(number int64, name receipt.SealerID) {
	if s.numbers == nil {
		s.numbers, s.names = make(map[receipt.SealerID]int64), make(map[int64]receipt.SealerID)
	}
	s.numbers[name], s.names[number] = number, name
}

// sealer returns the number of a sealer; 0 for one that is not stored.
func (tx *Tx) sealer(name receipt.SealerID) (int64, error) {
	if n, ok := tx.sealers.numbers[name]; ok {
		return n, nil
	}
	var s sealer
	found, err := tx.one(func(r *row) { s = readSealer(r) }, "SELECT "+sealerColumns+" FROM sealer WHERE name = ?", name[:])
	if found && err == nil {
		tx.sealers.add(s.number, name)
	}
	return s.number, err
}

// sealerName returns the name of a stored sealer.
func (tx *Tx) sealerName(number int64) (receipt.SealerID, error) {
	if name, ok := tx.sealers.names[number]; ok {
		return name, nil
	}
	var s sealer
	found, err := tx.one(func(r *row) { s = readSealer(r) }, "SELECT "+sealerColumns+" FROM sealer WHERE sealer = ?", number)
	if err == nil && !found {
		err = errRow
	}
	if err == nil {
		tx.sealers.add(s.number, s.name)
	}
	return s.name, err
}

// addSealer stores a sealer of which nothing was told.
func (tx *Tx) addSealer(name receipt.SealerID) (int64, error) {
	s := sealer{name: name}
	if _, err := tx.one(func(r *row) { s.number = r.int() }, "SELECT COALESCE(MAX(sealer), 0) + 1 FROM sealer"); err != nil {
		return 0, err
	}
	if err := tx.putSealer(&s); err != nil {
		return 0, err
	}
	tx.sealers.add(s.number, name)
	return s.number, nil
}

// PutSealer notes up to which number the receipts of a sealer are among the counts, under which key
// it seals and when it said so. A number that is not higher than the stored one changes nothing.
func (tx *Tx) PutSealer(name receipt.SealerID, through uint64, key string, at int64) error {
	number, err := tx.sealer(name)
	if err == nil && number == 0 {
		number, err = tx.addSealer(name)
	}
	if err != nil {
		return err
	}
	var s sealer
	if _, err := tx.one(func(r *row) { s = readSealer(r) }, "SELECT "+sealerColumns+" FROM sealer WHERE sealer = ?", number); err != nil {
		return err
	}
	if s.commits != 0 && s.through >= through {
		return nil
	}
	s.through, s.key, s.at, s.commits = through, key, at, tx.commit()
	return tx.putSealer(&s)
}

// Sealers calls each with the sealers that a commit later than since told, by name.
func (tx *Tx) Sealers(since uint64, each func(s receipt.SealerID, through uint64) error) error {
	return tx.query(func(r *row) error {
		s := readSealer(r)
		if r.damaged {
			return errRow
		}
		return each(s.name, s.through)
	}, "SELECT "+sealerColumns+" FROM sealer WHERE commits > ? ORDER BY name", int64(since))
}
