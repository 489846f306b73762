package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// TestModel does random things to a ledger, through two stores, closed or crashed at times, and
// compares all that it then says with maps. Rapid prints the seed of a failure.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		m := newModel(t, dir)
		defer m.end()
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"update":   m.update,
			"more":     m.update,
			"fail":     m.fail,
			"reopen":   m.reopen,
			"crash":    m.crash,
			"evidence": m.conflict,
		})
	})
}

// A state is what a ledger says, in maps.
type state struct {
	Promises  []store.Promise
	Decisions map[store.Key]*truth.Decision
	Sealed    map[store.Key]string
	Cohorts   map[cohort]store.Cohort
	Touched   map[cohort]uint64 // commit
	Issued    map[issued]store.Issued
	Told      map[cohort]uint64 // commit
	Sealers   map[receipt.SealerID]uint64
	SealersAt map[receipt.SealerID]uint64 // commit
	Meta      map[string]string
	Epoch     uint64
	Evidence  []byte
	Trail     [][]byte
	Policies  map[[32]byte]string
	Commit    uint64
}

type cohort struct{ promise, start int64 }

type issued struct {
	cohort
	hour    int64
	stratum receipt.Stratum
	process string
}

func (s *state) clone() *state {
	c := *s
	c.Decisions, c.Sealed, c.Cohorts, c.Touched, c.Issued, c.Told = maps.Clone(s.Decisions), maps.Clone(s.Sealed), maps.Clone(s.Cohorts),
		maps.Clone(s.Touched), maps.Clone(s.Issued), maps.Clone(s.Told)
	c.Sealers, c.SealersAt, c.Meta, c.Policies = maps.Clone(s.Sealers), maps.Clone(s.SealersAt), maps.Clone(s.Meta), maps.Clone(s.Policies)
	c.Trail, c.Promises = slices.Clone(s.Trail), slices.Clone(s.Promises)
	return &c
}

type model struct {
	dir    string
	stores [2]*store.Store
	state  *state
}

// promiseOf returns the n-th promise, whose periods are a minute, an hour, or not stated.
func promiseOf(n int) store.Promise {
	return store.Promise{Policy: [32]byte{byte(n)}, Version: uint64(n % 2), Period: []int64{60e6, 3600e6, 0}[n]}
}

func newModel(t *rapid.T, dir string) *model {
	m := &model{dir: dir, state: &state{Decisions: map[store.Key]*truth.Decision{}, Sealed: map[store.Key]string{}, Cohorts: map[cohort]store.Cohort{},
		Touched: map[cohort]uint64{}, Issued: map[issued]store.Issued{}, Told: map[cohort]uint64{}, Sealers: map[receipt.SealerID]uint64{},
		SealersAt: map[receipt.SealerID]uint64{}, Meta: map[string]string{}, Policies: map[[32]byte]string{}}}
	if err := store.Create(dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	m.open(t)
	for n := range 3 {
		p := promiseOf(n)
		m.must(t, 0, func(tx *store.Tx) error { return tx.AddPromise(&p) })
		m.state.Promises = append(m.state.Promises, p)
	}
	return m
}

func (m *model) open(t *rapid.T) {
	for i := range m.stores {
		var err error
		if m.stores[i], err = store.Open(m.dir, store.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *model) close() error { return errors.Join(m.stores[0].Close(), m.stores[1].Close()) }

func (m *model) end() {
	_ = m.close()
	_ = os.RemoveAll(m.dir)
}

func (m *model) must(t *rapid.T, i int, f func(tx *store.Tx) error) {
	t.Helper()
	if err := m.stores[i].Update(f); err != nil {
		t.Fatal(err)
	}
	m.state.Commit++
}

func (m *model) reopen(t *rapid.T) {
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	m.open(t)
}

// crash goes on with a copy of the files as they are.
func (m *model) crash(t *rapid.T) {
	copied, err := os.MkdirTemp("", "store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{store.FileName, store.FileName + "-wal"} {
		data, err := os.ReadFile(filepath.Join(m.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.end()
	m.dir = copied
	m.open(t)
}

// update does several things in one transaction.
func (m *model) update(t *rapid.T) {
	next := m.state.clone()
	m.must(t, rapid.IntRange(0, 1).Draw(t, "store"), func(tx *store.Tx) error { return change(t, tx, next) })
	next.Commit = m.state.Commit
	m.state = next
}

// fail does so, and then fails.
func (m *model) fail(t *rapid.T) {
	failed := errors.New("failed")
	err := m.stores[rapid.IntRange(0, 1).Draw(t, "store")].Update(func(tx *store.Tx) error {
		if err := change(t, tx, m.state.clone()); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
}

func (m *model) conflict(t *rapid.T) {
	if err := m.stores[0].Update(func(tx *store.Tx) error { return tx.PutEvidence("m", m.state.Epoch+1, nil) }); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
}

func drawDecision(t *rapid.T) *truth.Decision {
	n := rapid.IntRange(0, 40).Draw(t, "decision")
	d := decision(n)
	d.Receipt.Time = day0.UnixMicro() + int64(n/3)*30e6
	if n == 40 {
		d.Receipt.Time = -1
	}
	d.ID[0], d.ID[1] = byte(n%2), 0
	d.Receipt.Draw, d.Receipt.Slices[2], d.Readings = uint64(n%7), uint16(n), nil
	for range rapid.IntRange(0, 2).Draw(t, "readings") {
		d.Add(drawReading(t))
	}
	return d
}

func drawReading(t *rapid.T) truth.Reading {
	return truth.Reading{Source: rapid.SampledFrom([]string{"", "ann", "b\x00b"}).Draw(t, "source"), Kind: truth.Kind(rapid.IntRange(0, 2).Draw(t, "kind")),
		Truth: rapid.IntRange(0, 1).Draw(t, "truth"), SawModel: rapid.Bool().Draw(t, "saw"), At: day0.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "at")) * time.Second),
		By: "his", Reported: day0.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "reported")) * time.Microsecond)}
}

// The kinds of changes, some more often than others.
var kinds = []int{0, 0, 0, 0, 0, 1, 2, 3, 4, 4, 5, 6, 7, 7, 7, 7, 8, 8, 9, 10}

// change does random things to a ledger and to a state.
func change(t *rapid.T, tx *store.Tx, s *state) error {
	now := s.Commit + 1
	if err := tx.SetMeta("changed", fmt.Sprint(now)); err != nil {
		return err
	}
	s.Meta["changed"] = fmt.Sprint(now)
	for _, what := range rapid.Permutation(kinds).Draw(t, "kinds")[:rapid.IntRange(1, len(kinds)).Draw(t, "changes")] {
		promise := rapid.Int64Range(1, 3).Draw(t, "promise")
		c := cohort{promise, rapid.Int64Range(0, 1).Draw(t, "start")}
		stored := func() (store.Key, bool) {
			if len(s.Decisions) == 0 {
				return store.Key{}, false
			}
			return rapid.SampledFrom(slices.SortedFunc(maps.Keys(s.Decisions), compareKeys)).Draw(t, "key"), true
		}
		touched := func() {
			next := s.Cohorts[c]
			next.Promise, next.Start = c.promise, c.start
			s.Cohorts[c], s.Touched[c] = next, now
		}
		body := fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "body"))
		var err error
		switch what {
		case 0:
			d := drawDecision(t)
			k := key(promise, d)
			found, err := tx.Decisions([]store.Key{k})
			if err != nil {
				return err
			}
			if (found[k] != nil) != (s.Decisions[k] != nil) {
				t.Fatalf("%v is stored: %v", k, found[k])
			}
			p := s.Promises[promise-1]
			d.Receipt.Policy, d.Receipt.Version = p.Policy, p.Version
			some, counts := found[k] != nil, false // of the same draw
			for other, o := range s.Decisions {
				if other.Promise == promise && d.Receipt.Draw != 0 && o.Receipt.Draw == d.Receipt.Draw {
					some, counts = true, counts || !o.Duplicate
				}
			}
			inserted, err := tx.InsertFirst(promise, d, []byte(body))
			if inserted == some || err != nil {
				t.Fatalf("inserted: %v: %v", inserted, err)
			}
			if made := (cohort{promise, startOf(&p, d.Receipt.Time)}); s.Cohorts[made].Promise == 0 {
				s.Cohorts[made], s.Touched[made] = store.Cohort{Promise: made.promise, Start: made.start}, now
			}
			if found[k] != nil {
				continue
			}
			if some {
				d.Duplicate = counts
				if err := tx.Insert(promise, d, []byte(body)); err != nil {
					return err
				}
			}
			s.Decisions[k], s.Sealed[k] = d, body
		case 1:
			if k, ok := stored(); ok {
				r, d := drawReading(t), *s.Decisions[k]
				d.Readings = slices.DeleteFunc(slices.Clone(d.Readings), func(o truth.Reading) bool { return o.Compare(&r) == 0 })
				d.Readings = append(d.Readings, r)
				slices.SortFunc(d.Readings, func(a, b truth.Reading) int { return a.Compare(&b) })
				s.Decisions[k] = &d
				err = tx.PutReadings(k, []truth.Reading{r})
			}
		case 2:
			if k, ok := stored(); ok {
				d := *s.Decisions[k]
				d.Duplicate = true
				s.Decisions[k] = &d
				err = tx.SetDuplicate(k)
			}
		case 3:
			if k, ok := stored(); ok {
				delete(s.Decisions, k)
				delete(s.Sealed, k)
				err = tx.Delete([]store.Key{k})
			}
		case 4:
			next := s.Cohorts[c]
			next.Changes++
			s.Cohorts[c] = next
			touched()
			err = tx.Touch(c.promise, c.start)
		case 5:
			changes := rapid.Uint64Range(0, 2).Draw(t, "changes")
			if next := s.Cohorts[c]; next.Changes == changes {
				next.Counted, next.Count = changes, []byte(body)
				s.Cohorts[c] = next
				touched()
			}
			err = tx.PutCount(c.promise, c.start, changes, []byte(body))
		case 6:
			next := s.Cohorts[c]
			next.Point = []byte(body)
			if rapid.Bool().Draw(t, "taken") {
				next.Taken, next.Bets = true, []byte("b"+body)
				err = tx.PutTaken(c.promise, c.start, next.Bets, next.Point)
			} else {
				err = tx.PutPoint(c.promise, c.start, next.Point)
			}
			s.Cohorts[c] = next
			touched()
		case 7:
			i := store.Issued{Promise: c.promise, Cohort: c.start, Start: rapid.Int64Range(0, 1).Draw(t, "hour"), Stratum: receipt.Stratum(rapid.IntRange(2, 3).Draw(t, "stratum")),
				Process: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "process"), Settings: []byte(body[:1]),
				Counts: store.Counts{Decisions: rapid.Uint64Range(0, 2).Draw(t, "decisions"), Eligible: 2, Receipts: 3, Reviews: 4, Due: 5, Expected: -6, DueWeight: 7}}
			at := issued{c, i.Start, i.Stratum, i.Process}
			old, found := s.Issued[at]
			want := !found || i.Counts.Decisions > old.Counts.Decisions
			changed, failed := tx.PutIssued(&i)
			if err = failed; changed != want {
				t.Fatalf("changed %v, expected %v", changed, want)
			}
			if want {
				s.Issued[at], s.Told[c] = i, now
			}
		case 8:
			name, through := receipt.SealerID{byte(rapid.IntRange(0, 3).Draw(t, "sealer"))}, rapid.Uint64Range(0, 3).Draw(t, "through")
			if old, found := s.Sealers[name]; !found || through > old {
				s.Sealers[name], s.SealersAt[name] = through, now
			}
			err = tx.PutSealer(name, through, "key", 5)
		case 9:
			err = errors.Join(tx.PutEvidence("m", s.Epoch, []byte(body)), tx.AddEvent([]byte(body)))
			s.Epoch++
			s.Evidence, s.Trail = []byte(body), append(s.Trail, []byte(body))
		case 10:
			s.Policies[[32]byte{body[0]}], s.Promises[promise-1].Name = body, body
			again := promiseOf(int(promise - 1))
			err = errors.Join(tx.PutPolicy([32]byte{body[0]}, []byte(body)), tx.NameVersion(promise, body), tx.AddPromise(&again))
			if again != s.Promises[promise-1] {
				t.Fatalf("%+v was added again as %+v", s.Promises[promise-1], again)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func startOf(p *store.Promise, time int64) int64 {
	period := cmp.Or(p.Period, 86400e6)
	return time - (time%period+period)%period
}

func compareKeys(a, b store.Key) int { return a.Compare(&b) }

// check compares all that a store says with the state.
func (m *model) check(t *rapid.T) {
	since := rapid.Uint64Range(0, m.state.Commit).Draw(t, "since")
	from := day0.UnixMicro() + rapid.Int64Range(-1, 12).Draw(t, "from")*30e6
	if rapid.Bool().Draw(t, "all") {
		from = -10
	}
	before := day0.UnixMicro() + rapid.Int64Range(0, 20).Draw(t, "before")*30e6
	read := m.stores[rapid.IntRange(0, 1).Draw(t, "store")]
	if err := read.View(func(tx *store.Tx) error { return compare(t, tx, m.state, since, from, before) }); err != nil {
		t.Fatal(err)
	}
	if got := read.Identity().Commit; got != m.state.Commit {
		t.Fatalf("commit %d, expected %d", got, m.state.Commit)
	}
	if rapid.IntRange(0, 7).Draw(t, "verify") == 0 {
		if found := faultsOf(m.stores[0]); len(found) > 0 {
			t.Fatal(found)
		}
	}
}

func faultsOf(s *store.Store) (found []string) {
	if _, err := s.Verify(context.Background(), nil, func(fault string) { found = append(found, fault) }); err != nil {
		found = append(found, err.Error())
	}
	return found
}

func compare(t *rapid.T, tx *store.Tx, s *state, since uint64, from, before int64) error {
	equal := func(what string, want, got any) {
		t.Helper()
		if reflect.DeepEqual(want, got) {
			return
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%s:\n%s", what, diff)
		}
	}
	keys := slices.SortedFunc(maps.Keys(s.Decisions), compareKeys)
	found, err := tx.Decisions(keys)
	if err != nil {
		return err
	}
	for k, d := range found {
		if len(d.Readings) == 0 {
			found[k].Readings = nil
		}
	}
	equal("decisions", s.Decisions, found)
	for _, p := range s.Promises {
		var want, got []store.Key
		counting := map[uint64]store.Key{}
		for _, k := range keys {
			if k.Promise != p.Number {
				continue
			}
			if k.Time >= from && k.Time < before {
				want = append(want, k)
			}
			if d := s.Decisions[k]; !d.Duplicate && d.Receipt.Draw != 0 {
				counting[d.Receipt.Draw] = k
			}
		}
		if err := tx.Scan(p.Number, from, before, func(d *truth.Decision) error {
			got = append(got, key(p.Number, d))
			if want := s.Decisions[key(p.Number, d)]; want == nil || !slices.Equal(want.Readings, d.Readings) || want.Receipt.Policy != d.Receipt.Policy {
				t.Fatalf("scanned %+v, expected %+v", d, want)
			}
			return nil
		}); err != nil {
			return err
		}
		equal("scan", want, got)
		earliest, err := tx.Earliest(p.Number, []uint64{0, 1, 2, 3, 4, 5, 6, 7})
		if err != nil {
			return err
		}
		equal("earliest", counting, earliest)
	}
	for k, want := range s.Sealed {
		sealed, err := tx.Sealed(k)
		if err != nil {
			return err
		}
		equal("sealed", want, string(sealed))
	}
	for _, c := range []store.Choice{{}, {Promise: 2}, {Before: before}, {Group: 1}, {Draw: 3}, {Promise: 1, Before: before, Group: 2}} {
		var want, got []store.Key
		for _, k := range keys {
			d := s.Decisions[k]
			if (c.Promise == 0 || c.Promise == k.Promise) && (c.Before == 0 || k.Time < c.Before) && (c.Group == 0 || c.Group == d.Receipt.Group) && (c.Draw == 0 || c.Draw == d.Receipt.Draw) {
				want = append(want, k)
			}
		}
		if err := tx.Chosen(c, func(k store.Key, _ *truth.Decision) error { got = append(got, k); return nil }); err != nil {
			return err
		}
		slices.SortFunc(got, compareKeys)
		equal("chosen", want, got)
	}
	return errors.Join(compareCohorts(tx, s, since, equal), compareIssued(tx, s, since, equal), compareRest(tx, s, since, equal))
}

func compareCohorts(tx *store.Tx, s *state, since uint64, equal func(string, any, any)) error {
	var want []store.Cohort
	for c, at := range s.Touched {
		if at > since {
			want = append(want, s.Cohorts[c])
		}
	}
	slices.SortFunc(want, func(a, b store.Cohort) int {
		return cmp.Or(cmp.Compare(a.Promise, b.Promise), cmp.Compare(a.Start, b.Start))
	})
	got, err := tx.Cohorts(since)
	equal("cohorts", want, got)
	return err
}

func compareIssued(tx *store.Tx, s *state, since uint64, equal func(string, any, any)) error {
	sums, settings := map[cohort]*store.Sum{}, map[cohort]map[string]bool{}
	rows := map[issued]store.Issued{}
	err := tx.IssuedRows(func(i *store.Issued) error {
		rows[issued{cohort{i.Promise, i.Cohort}, i.Start, i.Stratum, i.Process}] = *i
		return nil
	})
	equal("issued", s.Issued, rows)
	for at, i := range s.Issued {
		if s.Told[at.cohort] <= since {
			continue
		}
		if sums[at.cohort] == nil {
			sums[at.cohort], settings[at.cohort] = &store.Sum{Promise: at.promise, Start: at.start}, map[string]bool{}
		}
		c := &sums[at.cohort].Strata[at.stratum]
		c.Decisions += i.Counts.Decisions
		c.Eligible += i.Counts.Eligible
		c.Receipts += i.Counts.Receipts
		c.Reviews += i.Counts.Reviews
		c.Due += i.Counts.Due
		c.Expected += i.Counts.Expected
		c.DueWeight += i.Counts.DueWeight
		settings[at.cohort][string(i.Settings)] = true
	}
	got, err2 := tx.Sums(since)
	for _, sum := range got {
		at := cohort{sum.Promise, sum.Start}
		distinct := map[string]bool{}
		for _, body := range sum.Settings {
			distinct[string(body)] = true
		}
		equal("settings", settings[at], distinct)
		sum.Settings = nil
		equal("sum", sums[at], &sum)
		delete(sums, at)
	}
	equal("sums that are missing", map[cohort]*store.Sum{}, sums)
	return errors.Join(err, err2)
}

func compareRest(tx *store.Tx, s *state, since uint64, equal func(string, any, any)) error {
	promises, err := tx.Promises()
	equal("promises", s.Promises, promises)
	want, got := map[receipt.SealerID]uint64{}, map[receipt.SealerID]uint64{}
	for name, at := range s.SealersAt {
		if at > since {
			want[name] = s.Sealers[name]
		}
	}
	err = errors.Join(err, tx.Sealers(since, func(name receipt.SealerID, through uint64) error { got[name] = through; return nil }))
	equal("sealers", want, got)
	for name, value := range s.Meta {
		got, failed := tx.Meta(name)
		equal("meta", value, got)
		err = errors.Join(err, failed)
	}
	epoch, evidence, failed := tx.Evidence("m")
	equal("epoch", s.Epoch, epoch)
	equal("evidence", s.Evidence, evidence)
	var trail [][]byte
	err = errors.Join(err, failed, tx.Trail(func(body []byte) error { trail = append(trail, body); return nil }))
	equal("trail", s.Trail, trail)
	policies := map[[32]byte]string{}
	err = errors.Join(err, tx.Policies(func(hash [32]byte, body []byte) error { policies[hash] = string(body); return nil }))
	equal("policies", s.Policies, policies)
	return err
}
