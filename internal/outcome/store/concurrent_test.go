package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/store"
)

// childDir names the ledger of a process that TestTwoProcesses starts, which is this binary again.
const childDir = "CKD_TEST_STORE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		s, err := store.Open(dir, store.Options{NoSync: true})
		for i := 0; i < updates && err == nil; i++ {
			err = s.Update(func(tx *store.Tx) error { return tx.Touch(1, 0) })
		}
		if err = errors.Join(err, s.Close()); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const updates = 100

// TestTwoProcesses updates one cohort in two processes: no update is lost, and each process sees
// the other's.
func TestTwoProcesses(t *testing.T) {
	dir, s := create(t)
	self, err := os.Executable()
	if err != nil {
		t.Skipf("the test binary cannot be started again: %v", err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childDir+"="+dir)
	var said bytes.Buffer
	child.Stderr = &said
	if err := child.Start(); err != nil {
		t.Skipf("the test binary cannot be started again: %v", err)
	}
	for range updates {
		update(t, s, func(tx *store.Tx) error { return tx.Touch(1, 0) })
	}
	if err := child.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	view(t, s, func(tx *store.Tx) error {
		all, err := tx.Cohorts(0)
		if len(all) != 1 || all[0].Changes != 2*updates || tx.Identity().Commit != 2*updates {
			t.Errorf("%+v at %+v", all, tx.Identity())
		}
		return err
	})
	if got := s.Identity().Commit; got != 2*updates {
		t.Errorf("commit %d", got)
	}
}

// TestReadOnly reads beside a store that writes.
func TestReadOnly(t *testing.T) {
	dir, s := create(t)
	reader, err := store.OpenReadOnly(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	update(t, s, func(tx *store.Tx) error { return tx.SetMeta("a", "b") })
	view(t, reader, func(tx *store.Tx) error {
		if got, err := tx.Meta("a"); got != "b" || err != nil {
			t.Errorf("%q: %v", got, err)
		}
		return nil
	})
	if err := reader.Update(func(*store.Tx) error { return nil }); err == nil {
		t.Error("it writes")
	}
	if err := reader.View(func(tx *store.Tx) error { return tx.SetMeta("a", "c") }); err == nil {
		t.Error("a View writes")
	}
}

// TestLongView reads while the log grows: its reads end with ErrLong, and the log begins anew.
func TestLongView(t *testing.T) {
	_, s := create(t)
	megabyte := make([]byte, 1<<20)
	began, written := make(chan bool), make(chan bool)
	go func() {
		<-began
		for n := range 140 {
			for i := range megabyte {
				megabyte[i] = byte(n)
			}
			if err := s.Update(func(tx *store.Tx) error { return tx.PutPolicy([32]byte{1}, megabyte) }); err != nil {
				t.Error(err)
			}
		}
		close(written)
	}()
	err := s.View(func(tx *store.Tx) error {
		close(began)
		if _, err := tx.Promises(); err != nil {
			return err
		}
		<-written
		_, err := tx.Promises()
		return err
	})
	if !errors.Is(err, store.ErrLong) {
		t.Error(err)
	}
	update(t, s, func(tx *store.Tx) error { return tx.SetMeta("a", "b") })
	if log := s.Status().LogBytes; log > 32<<20 {
		t.Errorf("the log has %d bytes", log)
	}
}

// TestBackup backs up while Updates go on.
func TestBackup(t *testing.T) {
	now := day0
	dir := t.TempDir()
	if err := store.Create(dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir, store.Options{NoSync: true, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, s, 2000)
	var (
		writers sync.WaitGroup
		stop    = make(chan bool)
	)
	writers.Go(func() {
		for n := 2000; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Update(func(tx *store.Tx) error {
				return errors.Join(tx.Insert(1, decision(n), nil), tx.PutPolicy([32]byte{2}, make([]byte, 100_000)))
			}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	backups := t.TempDir()
	to := filepath.Join(backups, store.FileName)
	before := s.Identity()
	if err := s.Backup(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	close(stop)
	writers.Wait()
	if status := s.Status(); status.LogBytes > 100<<20 || !status.LastBackup.Equal(now) {
		t.Errorf("%+v", status)
	}
	if files, err := os.ReadDir(backups); err != nil || len(files) != 1 {
		t.Errorf("%v: %v", files, err)
	}
	backup := open(t, backups)
	if found := faults(t, backup); len(found) > 0 {
		t.Error(found)
	}
	if i := backup.Identity(); i.ID != before.ID || i.Commit < before.Commit || i.Commit > s.Identity().Commit {
		t.Errorf("%+v, before %+v, after %+v", i, before, s.Identity())
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Backup(ended, filepath.Join(backups, "other")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestGeneration(t *testing.T) {
	dir, s := create(t)
	first := s.Identity()
	if first.ID == "" || first.Branch == "" || first.Generation != 1 {
		t.Errorf("%+v", first)
	}
	update(t, s, (*store.Tx).NextGeneration)
	s.Close()
	second := open(t, dir).Identity()
	if second.ID != first.ID || second.Generation != 2 || second.Branch == first.Branch || second.Commit != first.Commit+1 {
		t.Errorf("%+v after %+v", second, first)
	}
}

// TestFailedUpdate leaves nothing of an Update that failed or panicked, and the next one works.
func TestFailedUpdate(t *testing.T) {
	_, s := create(t)
	failed := errors.New("no")
	if err := s.Update(func(tx *store.Tx) error { return errors.Join(tx.SetMeta("a", "b"), failed) }); !errors.Is(err, failed) {
		t.Error(err)
	}
	func() {
		defer func() { recover() }() //nolint:errcheck // it is the panic below
		_ = s.Update(func(tx *store.Tx) error {
			if err := tx.SetMeta("a", "b"); err != nil {
				return err
			}
			panic("no")
		})
	}()
	update(t, s, func(tx *store.Tx) error {
		if got, err := tx.Meta("a"); got != "" || err != nil {
			t.Errorf("%q: %v", got, err)
		}
		return tx.SetMeta("c", "d")
	})
	if got := s.Identity().Commit; got != 1 {
		t.Errorf("commit %d", got)
	}
	if status := s.Status(); status.FailedWrites != 0 {
		t.Errorf("%+v", status)
	}
}
