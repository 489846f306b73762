package main

import "testing"

func TestVersion(t *testing.T) {
	t.Parallel()
	want := runOK(t, "version")
	wantFragment(t, want, "ckd ")
	wantFragment(t, want, "revision ")
}
