package store

import "errors"

// Policies calls each with the stored policies, in the order of their hashes.
func (tx *Tx) Policies(each func(hash [32]byte, body []byte) error) error {
	return tx.query(func(r *row) error {
		h, body := r.bytes(), r.bytes()
		if r.check(tablePolicy.sum(h, body)); r.damaged || len(h) != 32 {
			return errRow
		}
		return each([32]byte(h), body)
	}, "SELECT hash, body, sum FROM policy ORDER BY hash")
}

// PutPolicy stores a policy in place of the one with its hash.
func (tx *Tx) PutPolicy(hash [32]byte, body []byte) error {
	_, err := tx.exec("INSERT INTO policy (hash, body, sum) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET body = excluded.body, sum = excluded.sum",
		hash[:], body, tablePolicy.sum(hash[:], body))
	return err
}

// A Promise is a policy with a version of the model.
type Promise struct {
	Number  int64
	Policy  [32]byte
	Version uint64 // receipt.VersionHash
	Name    string // the text of the version; "" until told
	Period  int64
}

func (p *Promise) sum() int64 {
	return tablePromise.sum(p.Number, p.Policy[:], p.Version, p.Name, p.Period)
}

const promiseColumns = "promise, policy, version, name, period, sum"

func readPromise(r *row) (p Promise) {
	p.Number = r.int()
	policy := r.bytes()
	r.damaged = r.damaged || len(policy) != len(p.Policy)
	copy(p.Policy[:], policy)
	p.Version, p.Name, p.Period = r.uint(), r.text(), r.int()
	r.check(p.sum())
	return p
}

// Promises returns the promises by their numbers.
func (tx *Tx) Promises() (all []Promise, err error) {
	err = tx.query(func(r *row) error {
		all = append(all, readPromise(r))
		return nil
	}, "SELECT "+promiseColumns+" FROM promise ORDER BY promise")
	return all, err
}

// AddPromise stores a promise, and sets its number. Where its policy and version are stored
// already, p becomes what is stored.
func (tx *Tx) AddPromise(p *Promise) error {
	found, err := tx.one(func(r *row) { *p = readPromise(r) },
		"SELECT "+promiseColumns+" FROM promise WHERE policy = ? AND version = ?", p.Policy[:], int64(p.Version))
	if found || err != nil {
		return err
	}
	if _, err := tx.one(func(r *row) { p.Number = r.int() }, "SELECT COALESCE(MAX(promise), 0) + 1 FROM promise"); err != nil {
		return err
	}
	return tx.putPromise(p)
}

// NameVersion stores the text of a promise's version.
func (tx *Tx) NameVersion(promise int64, name string) error {
	p, err := tx.promise(promise)
	if err != nil {
		return err
	}
	p.Name = name
	return tx.putPromise(p)
}

func (tx *Tx) putPromise(p *Promise) error {
	delete(tx.promises, p.Number)
	_, err := tx.exec("INSERT INTO promise ("+promiseColumns+") VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (promise) DO UPDATE SET name = excluded.name, sum = excluded.sum",
		p.Number, p.Policy[:], int64(p.Version), p.Name, p.Period, p.sum())
	return err
}

// Evidence returns the evidence of a model and its epoch; 0 and nil for none.
func (tx *Tx) Evidence(model string) (epoch uint64, body []byte, err error) {
	_, err = tx.one(func(r *row) {
		epoch, body = r.uint(), r.bytes()
		r.check(tableEvidence.sum(model, epoch, body))
	}, "SELECT epoch, body, sum FROM evidence WHERE model = ?", model)
	return epoch, body, err
}

// ErrConflict is the error of PutEvidence where another transaction has put evidence since.
var ErrConflict = errors.New("the evidence is not what it was when it was read")

// PutEvidence stores the evidence of a model as epoch + 1. The error is ErrConflict unless what is
// stored is of this epoch.
func (tx *Tx) PutEvidence(model string, epoch uint64, body []byte) error {
	stored, _, err := tx.Evidence(model)
	if err != nil {
		return err
	}
	if stored != epoch {
		return ErrConflict
	}
	_, err = tx.exec("INSERT INTO evidence (model, epoch, body, sum) VALUES (?, ?, ?, ?) ON CONFLICT (model) DO UPDATE SET "+
		"epoch = excluded.epoch, body = excluded.body, sum = excluded.sum", model, int64(epoch+1), body, tableEvidence.sum(model, epoch+1, body))
	return err
}

// AddEvent adds an event to the trail.
func (tx *Tx) AddEvent(body []byte) error {
	var event int64
	if _, err := tx.one(func(r *row) { event = r.int() }, "SELECT COALESCE(MAX(event), 0) + 1 FROM trail"); err != nil {
		return err
	}
	_, err := tx.exec("INSERT INTO trail (event, body, sum) VALUES (?, ?, ?)", event, body, tableTrail.sum(event, body))
	return err
}

// Trail calls each with the events in their order.
func (tx *Tx) Trail(each func(body []byte) error) error {
	return tx.query(func(r *row) error {
		event, body := r.int(), r.bytes()
		if r.check(tableTrail.sum(event, body)); r.damaged {
			return errRow
		}
		return each(body)
	}, "SELECT event, body, sum FROM trail ORDER BY event")
}

// Meta returns what is noted under a name; "" for nothing.
func (tx *Tx) Meta(name string) (value string, err error) {
	_, err = tx.one(func(r *row) {
		value = r.text()
		r.check(tableMeta.sum(name, value))
	}, "SELECT value, sum FROM meta WHERE name = ?", name)
	return value, err
}

// SetMeta notes something under a name.
func (tx *Tx) SetMeta(name, value string) error {
	_, err := tx.exec("INSERT INTO meta (name, value, sum) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value, sum = excluded.sum",
		name, value, tableMeta.sum(name, value))
	return err
}
