package main

import "testing"

func TestVersion(t *testing.T) {
	t.Parallel()
	want := runOK(t, "version")
	wantFragment(t, want, "ckd ")
	wantFragment(t, want, "revision ")
	if got := runOK(t, "--version"); got != want {
		t.Errorf("ckd --version says %q, ckd version %q", got, want)
	}
}
