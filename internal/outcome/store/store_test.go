package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

var day0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func create(t testing.TB) (dir string, s *store.Store) {
	t.Helper()
	dir = t.TempDir()
	if err := store.Create(dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir, open(t, dir)
}

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func update(t testing.TB, s *store.Store, f func(tx *store.Tx) error) {
	t.Helper()
	if err := s.Update(f); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, s *store.Store, f func(tx *store.Tx) error) {
	t.Helper()
	if err := s.View(f); err != nil {
		t.Fatal(err)
	}
}

// decision returns the n-th decision, with one reading.
func decision(n int) *truth.Decision {
	at := day0.Add(time.Duration(n) * time.Minute)
	d := &truth.Decision{Receipt: receipt.Receipt{Policy: [32]byte{1}, Version: 7, Time: at.UnixMicro(), Stratum: receipt.CalledSafe, Review: true,
		Predicted: 1, Passes: 20, Risk: .25, Propensity: .02, Draw: uint64(n + 1), Group: uint64(n % 3)}, Sampled: n%2 == 0}
	d.ID[0], d.ID[23] = byte(n>>8), byte(n)
	d.Add(truth.Reading{Source: "ann", Truth: n % 2, At: at.Add(time.Hour), By: "his", Reported: at.Add(2 * time.Hour)})
	return d
}

func key(promise int64, d *truth.Decision) store.Key {
	return store.KeyOf(promise, &d.Receipt, d.ID)
}

func TestDecisions(t *testing.T) {
	dir, s := create(t)
	p := store.Promise{Policy: [32]byte{1}, Version: 7, Period: 86400e6}
	var want []*truth.Decision
	update(t, s, func(tx *store.Tx) error {
		if err := tx.AddPromise(&p); err != nil {
			return err
		}
		for n := range 100 {
			d := decision(n)
			want = append(want, d)
			if err := tx.Insert(p.Number, d, []byte{byte(n)}); err != nil {
				return err
			}
		}
		return nil
	})
	second := truth.Reading{Source: "bob", Kind: truth.ByBiopsy, Truth: 1, SawModel: true, At: day0, By: "lab", Reported: day0}
	want[3].Add(second)
	want[4].Duplicate = true
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.PutReadings(key(p.Number, want[3]), []truth.Reading{second}), tx.SetDuplicate(key(p.Number, want[4])),
			tx.Delete([]store.Key{key(p.Number, want[9])}))
	})
	want = append(want[:9], want[10:]...)
	check := func() {
		t.Helper()
		view(t, s, func(tx *store.Tx) error {
			var got []*truth.Decision
			err := tx.Scan(p.Number, day0.UnixMicro(), day0.Add(time.Hour*24).UnixMicro(), func(d *truth.Decision) error {
				clone := *d
				clone.Readings = append([]truth.Reading(nil), d.Readings...)
				got = append(got, &clone)
				return nil
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			found, err2 := tx.Decisions([]store.Key{key(p.Number, want[5]), key(p.Number, decision(9))})
			if diff := cmp.Diff(map[store.Key]*truth.Decision{key(p.Number, want[5]): want[5]}, found); diff != "" {
				t.Error(diff)
			}
			earliest, err3 := tx.Earliest(p.Number, []uint64{3, 5, 1000})
			if diff := cmp.Diff(map[uint64]store.Key{3: key(p.Number, want[2])}, earliest); diff != "" {
				t.Error(diff)
			}
			sealed, err4 := tx.Sealed(key(p.Number, want[5]))
			if diff := cmp.Diff([]byte{5}, sealed); diff != "" {
				t.Error(diff)
			}
			chosen := 0
			err5 := tx.Chosen(store.Choice{Group: 1}, func(k store.Key, d *truth.Decision) error { chosen++; return nil })
			if chosen != 33 {
				t.Errorf("%d chosen", chosen)
			}
			return errors.Join(err, err2, err3, err4, err5)
		})
	}
	check()
	checked, err := s.Verify(context.Background(), nil, func(fault string) { t.Error(fault) })
	if err != nil || checked.Decisions != 99 {
		t.Errorf("%+v: %v", checked, err)
	}
	s.Close()
	s = open(t, dir)
	check()
	backup := filepath.Join(t.TempDir(), "backup.db")
	if err := s.Backup(context.Background(), backup); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(backup); err != nil || info.Size() == 0 {
		t.Error(info, err)
	}
	t.Logf("%+v %+v", s.Status(), s.Identity())
}

func TestCohortsAndIssued(t *testing.T) {
	_, s := create(t)
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.Touch(1, 0), tx.Touch(1, 0), tx.Touch(2, 0), tx.PutCount(1, 0, 2, []byte("two")), tx.PutCount(2, 0, 7, []byte("stale")),
			tx.PutTaken(1, 0, []byte("bets"), []byte("point")), tx.PutPoint(1, 0, []byte("later")))
	})
	issued := store.Issued{Promise: 1, Cohort: 0, Start: 3600, Stratum: receipt.CalledSafe, Process: "a", Counts: store.Counts{Decisions: 10, Expected: 5}, Settings: []byte("x")}
	put := func(i store.Issued, want bool) {
		t.Helper()
		update(t, s, func(tx *store.Tx) error {
			changed, err := tx.PutIssued(&i)
			if changed != want {
				t.Errorf("changed %v", changed)
			}
			return err
		})
	}
	put(issued, true)
	put(issued, false)
	issued.Counts, issued.Settings = store.Counts{Decisions: 20, Expected: 11}, []byte("y")
	put(issued, true)
	issued.Process = "b"
	put(issued, true)
	view(t, s, func(tx *store.Tx) error {
		cohorts, err := tx.Cohorts(0)
		if diff := cmp.Diff([]store.Cohort{{Promise: 1, Changes: 2, Counted: 2, Count: []byte("two"), Taken: true, Bets: []byte("bets"), Point: []byte("later")},
			{Promise: 2, Changes: 1}}, cohorts); diff != "" {
			t.Error(diff)
		}
		none, err2 := tx.Cohorts(1)
		if len(none) != 0 {
			t.Error(none)
		}
		sums, err3 := tx.Sums(0)
		want := store.Sum{Promise: 1, Settings: [][]byte{[]byte("y")}}
		want.Strata[receipt.CalledSafe] = store.Counts{Decisions: 40, Expected: 22}
		if diff := cmp.Diff([]store.Sum{want}, sums); diff != "" {
			t.Error(diff)
		}
		if got := tx.Identity().Commit; got != 4 {
			t.Errorf("commit %d", got)
		}
		return errors.Join(err, err2, err3)
	})
	if _, err := s.Verify(context.Background(), nil, func(fault string) { t.Error(fault) }); err != nil {
		t.Error(err)
	}
}
