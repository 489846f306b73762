package server

import (
	"fmt"
	"testing"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/audit"
)

// A rule that audits of its last inputs stop while another policy is in force is stopped
// when its policy is loaded again.
func TestStopsWhileNotInForce(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	wrong, other := settlingPolicy(t, 0, 9, settle.Never), settlingPolicy(t, 0, -3, settle.Never)
	h.put(t, wrong)
	h.auditShare(400, 0)
	rec := ctg(t)
	s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", AcceptSettled: true})
	const n = 400
	s.sendBlock(&ckdv1.Block{InputIds: make([]string, n), Values: rowsOfPass(rec, 0, 0, n)})
	s.receive()
	h.put(t, other)
	for pass := 1; pass < rec.S; pass++ {
		s.sendBlock(&ckdv1.Block{Values: rowsOfPass(rec, pass, 0, n)})
	}
	if got := len(s.rest()); got != n {
		t.Fatalf("%d results of %d inputs", got, n)
	}
	if h.metric(t, "ckd_settle_stopped") != 0 {
		t.Error("the policy in force is stopped by audits of another")
	}
	h.put(t, wrong)
	if h.metric(t, "ckd_settle_stopped") != 1 {
		t.Error("the policy that was stopped is not when it is loaded again")
	}
	if n := h.feedCTG(t, 100); n != 0 {
		t.Errorf("%d are settled by it", n)
	}
}

// The watch of a rule goes on when its policy comes back.
func TestWatchGoesOn(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	p, other := settlingPolicy(t, 25, -1, 0.7), settlingPolicy(t, 0, -3, settle.Never)
	h.put(t, p)
	h.feedCTG(t, 400)
	h.put(t, other)
	h.put(t, p)
	if got := h.server.Settling()["ctg"].All.Audited; got != 400 {
		t.Errorf("%d audits are known of a policy that was audited 400 times", got)
	}
	if n := h.feedCTG(t, 100); n == 0 {
		t.Error("it is audited anew, and settles nothing")
	}
}

// However many policies there were, so many of them are known that were in force last, and
// those that were stopped longer than others.
func TestFormerSettlings(t *testing.T) {
	s, p := &Server{}, *settlingPolicy(t, 0, -1, 1)
	load := func(is *settling) { s.keepSettlings(catalog{"m": {settling: is}, "without a rule": {}}) }
	known := func(is *settling) bool {
		p.Hash = is.hash
		got, err := s.settlingOf(&p)
		if err != nil {
			t.Fatal(err)
		}
		return got == is
	}
	var all []*settling
	add := func(stopped bool) *settling {
		p.Hash = fmt.Sprint("policy ", len(all))
		is, err := newSettling(&p)
		if err != nil {
			t.Fatal(err)
		}
		for stopped && !is.stopped.Load() {
			is.judge(audit.WronglyRetained)
		}
		all = append(all, is)
		load(is)
		if len(s.settlings) > formerSettlings+1 {
			t.Fatalf("%d are kept after %d policies", len(s.settlings), len(all))
		}
		return is
	}
	stopped, good := add(true), add(false)
	for range formerSettlings - 1 {
		add(false)
	}
	if !known(stopped) || !known(good) {
		t.Error("a policy is forgotten, though all were to be kept")
	}
	load(good) // and so it is not the oldest any more
	add(false)
	if !known(stopped) || !known(good) || known(all[2]) || !known(all[3]) {
		t.Error("it is not the one in force longest ago that is forgotten, of those that were not stopped")
	}
	for range 2 * formerSettlings {
		add(false)
	}
	if !known(stopped) || known(good) {
		t.Error("a policy that was stopped is forgotten before others")
	}
	for range formerSettlings {
		add(true)
	}
	if !known(stopped) {
		t.Error("a policy that was stopped is forgotten before one that was not")
	}
	add(true)
	if known(stopped) || !known(all[len(all)-2]) {
		t.Error("of stopped ones it is not the oldest that is forgotten")
	}
}
