package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOutcomesBegin begins a ledger, and leaves one that is there alone: byte for byte where asked to, and by a
// refusal else.
func TestOutcomesBegin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	begin := []string{"outcomes", "begin", "--ledger", dir}
	wantFragment(t, runOK(t, append(begin, "--if-missing")...), "a new ledger is in "+dir)
	file := filepath.Join(dir, "ledger.db")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runCommand(t, begin...); code != exitFault {
		t.Errorf("exit code %d: %s", code, stderr)
	} else {
		wantFragment(t, stderr, "a ledger is there already")
	}
	wantFragment(t, runOK(t, append(begin, "--if-missing")...), "is left as it is")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the ledger has changed: %v", err)
	}
	if err := os.Truncate(file, 0); err != nil { // damage is no absence
		t.Fatal(err)
	}
	runOK(t, append(begin, "--if-missing")...)
	if info, err := os.Stat(file); err != nil || info.Size() != 0 {
		t.Errorf("a damaged ledger was replaced: %v", err)
	}
}
