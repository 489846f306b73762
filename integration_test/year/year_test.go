package year

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// An event happens to the site on the morning of a day, counted from 0, before anything is decided.
type event struct {
	day  int
	what string
	do   func(*site)
}

// monthly are the policies: one a month of 30 days, of which some differ from the usual one.
var monthly = map[int]terms{
	4: {rate: 0.2, cap: 4, due: 14 * day, fnrLine: 0.28, missRateLine: 0.25, runLength: 2e6},
	5: {rate: 0.1, free: true, due: 14 * day, fnrLine: 0.3, missRateLine: 0.25, runLength: 2e6},
}

// events are the script of the year, beside the policies.
var events = []event{
	{3, "a second model version answers a part of the traffic", func(s *site) { s.missing["v2"] = 0.01 }},
	{10, "the receipt key is changed", (*site).addKey},
	{15, "the ledger is away for an hour", func(s *site) { s.awayFor(time.Hour) }},
	{20, "the clock of a replica goes ten minutes fast", func(s *site) { s.replicas[0].setSkew(10 * time.Minute) }},
	{24, "the clock of the replica is two hours slow", func(s *site) { s.replicas[0].setSkew(-2 * time.Hour) }},
	{27, "the clock of the replica is right", func(s *site) { s.replicas[0].setSkew(0) }},
	{33, "version v1 misses most of what it calls safe", func(s *site) { s.missing["v1"], s.defers = 0.6, perhaps }},
	{41, "version v1 is repaired", func(s *site) { s.missing["v1"] = 0.01 }},
	{55, "the alarm is up", func(s *site) { s.expectAlarm(true) }},
	{56, "a replica loses its state while the ledger is away", (*site).forgetAlarm},
	{57, "another ledger is begun in place of the ledger", (*site).mistakeFolder},
	{63, "the alarm is cleared", (*site).clear},
	{66, "readers take back that the model missed", func(s *site) { s.withdraw(1, 0.1) }},
	{67, "the ledger goes away", func(s *site) { s.ledger.stop() }},
	{74, "the ledger comes back", (*site).startLedger},
	{76, "readers stand by what they say", func(s *site) { s.withdraw(0, 0.01) }},
	{78, "the ledger is killed and comes back", func(s *site) { s.ledger.kill(); s.startLedger() }},
	{80, "a replica is killed and comes back", func(s *site) { s.replicas[1].kill(); s.replicas[1].start() }},
	{85, "the disk of the ledger is full", func(s *site) { s.fillDisk(true) }},
	{86, "the disk of the ledger has room again", func(s *site) { s.fillDisk(false) }},
	{95, "the receipt key is changed again", (*site).addKey},
	{100, "the retired receipt keys are lost", (*site).loseKeys},
	{104, "the replicas seal by a key that the ledger lacks", func(s *site) { s.addKeyLate(true) }},
	{105, "the ledger gets the key", func(s *site) { s.addKeyLate(false) }},
	{123, "the ledger is copied", (*site).copyLedger},
	{127, "the copy is put back", (*site).restoreLedger},
	{160, "the outcomes of the first 130 days are deleted", func(s *site) { s.delete(130) }},
	{185, "version v1 misses most of what it calls safe", func(s *site) { s.missing["v1"], s.defers = 0.6, perhaps }},
	{192, "version v1 is repaired", func(s *site) { s.missing["v1"] = 0.01 }},
	{208, "the alarm is up", func(s *site) { s.expectAlarm(true) }},
	{209, "the next policy answers the alarm", (*site).answerAlarm},
	{212, "what is still up is cleared", (*site).clear},
}

// TestYear lets a site live through a year, and compares all that it says with an account of what
// happened every week. CKD_YEAR_SEED repeats a run, and CKD_YEAR_DAYS ends it earlier.
func TestYear(t *testing.T) {
	timed.Long(t)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CKD_YEAR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	days := 365
	if text := os.Getenv("CKD_YEAR_DAYS"); text != "" {
		var err error
		if days, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CKD_YEAR_SEED=%d", seed)
	s := newSite(t, seed, time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), 2)
	s.missing["v1"] = 0.01
	for n := range days {
		s.liveThrough(n)
		if n%7 == 6 || n == days-1 {
			if disagreements := agree(s); len(disagreements) > 0 {
				const most = 40
				for _, d := range disagreements[:min(most, len(disagreements))] {
					t.Errorf("day %d: %s", n, d)
				}
				t.Fatalf("day %d: %d disagreements", n, len(disagreements))
			}
		}
	}
	t.Logf("verdicts: %v", s.verdicts)
	if days >= 100 && s.verdicts[ckdv1.Verdict_VERDICT_HOLDING] == 0 {
		t.Error("no promise ever held")
	}
}

// liveThrough is a day of the site: what happens to it, traffic, and answers of readers.
func (s *site) liveThrough(n int) {
	s.Helper()
	morning := s.begun.Add(time.Duration(n) * day)
	s.setTime(morning.Add(8 * time.Hour))
	s.list() // takes what is mature into the evidence
	if month := n / 30; month > 0 && n%30 == 0 {
		t, different := monthly[month]
		if !different {
			t = usual
		}
		s.writePolicy(month, t)
	}
	for _, e := range events {
		if e.day == n {
			s.Logf("day %d: %s", n, e.what)
			e.do(s)
		}
	}
	s.decideAll(30)
	for burst := range 3 { // minutes apart, as caps of audits notice
		s.setTime(morning.Add(15*time.Hour + time.Duration(burst)*5*time.Minute))
		s.decideAll(10)
	}
	s.told()
	s.readers.answer()
}

// decideAll has each daemon decide so many inputs of each model version, some of them for a second time.
func (s *site) decideAll(inputs int) {
	s.Helper()
	versions := []string{"v1"}
	if _, two := s.missing["v2"]; two {
		versions = append(versions, "v2")
	}
	deciders := s.nodes()
	if s.idle {
		deciders = s.replicas
	}
	for _, version := range versions {
		if s.account.promises[promiseKey{s.policy, version}] == nil { // so that the order of promises is known
			deciders[0].decide(version, s.traffic(version, 10))
			s.told()
		}
	}
	for _, n := range deciders {
		for _, version := range versions {
			batch := s.traffic(version, inputs/len(versions))
			if version == "v1" && !s.lags {
				batch = append(batch, s.old...)
				s.old = slices.Clone(batch[:1])
			}
			n.decide(version, batch)
		}
	}
}

// list returns what the ledger lists; nil while it is down or cannot write.
func (s *site) list() []*ckdv1.PromiseFigures {
	s.Helper()
	if s.ledger.Daemon == nil || s.full {
		return nil
	}
	list, err := s.ledger.Outcomes().ListPromises(s.Context(), &ckdv1.ListPromisesRequest{})
	if err != nil {
		s.Fatal(err)
	}
	return list.GetPromises()
}

// told waits until the ledger knows of all decisions.
func (s *site) told() {
	s.Helper()
	if s.ledger.Daemon == nil || s.full {
		return
	}
	want := uint64(0)
	for _, p := range s.account.promises {
		want += uint64(len(p.decisions))
	}
	var got uint64
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got = 0
		for _, p := range s.list() {
			for _, n := range p.GetStrata() {
				got += n.GetDecisions()
			}
		}
		if got == want {
			return
		}
	}
	s.account.problem("the ledger knows of %d decisions, expected %d", got, want)
}

// awayFor stops the ledger and starts it again after a time, in which the replicas decide.
func (s *site) awayFor(d time.Duration) {
	s.Helper()
	s.ledger.stop()
	s.decideAll(10)
	s.setTime(s.now().Add(d))
	testbed.Eventually(s.T, "the replicas say that the ledger is away", func() bool {
		c := &comparison{site: s, at: s.now()}
		c.run()
		return len(c.found) == 0
	})
	s.startLedger()
}

// withdraw has readers take back a part of the critical readings of inputs that the model called safe, of
// which some share is critical from now on.
func (s *site) withdraw(part, missing float64) {
	s.readers.withdraw, s.missing["v1"], s.defers = part, missing, perhaps
}

// forgetAlarm kills a replica and its ledger while an alarm is up, and starts the replica without what the
// ledger had told it. What is called safe is deferred as before.
func (s *site) forgetAlarm() {
	s.Helper()
	replica := s.replicas[1]
	s.ledger.stop()
	replica.kill()
	if err := os.Remove(s.path(replica.name + ".state")); err != nil {
		s.Fatal(err)
	}
	replica.start()
	if !strings.Contains(replica.model().GetDeferring(), "has not answered since this daemon started") {
		s.Errorf("%s, which never heard of its ledger, says: %s", replica.name, replica.model().GetDeferring())
	}
	replica.decide("v1", s.traffic("v1", 10))
	s.startLedger()
	s.expectAlarm(true)
}

// mistakeFolder starts the ledger in a folder where another one was begun while an alarm is up, and then in
// its own again. What is called safe is deferred as before.
func (s *site) mistakeFolder() {
	s.Helper()
	s.ledger.stop()
	own := s.ledger.args
	s.ledger.args = append(slices.Clip(own[:len(own)-1]), testbed.Ledger(s.T, s.binary))
	s.ledger.start()
	testbed.Eventually(s.T, "the replicas say that it is another ledger", func() bool {
		return !slices.ContainsFunc(s.replicas, func(n *node) bool { return n.Metrics().Sum("ckd_ledger_fault", "fault", "other_ledger") != 1 })
	})
	for _, n := range s.replicas {
		n.decide("v1", s.traffic("v1", 10))
	}
	s.ledger.stop()
	s.ledger.args = own
	s.startLedger()
	s.expectAlarm(true)
}

// ledgerFile returns the path of the ledger.
func (s *site) ledgerFile() string {
	return filepath.Join(s.ledger.args[len(s.ledger.args)-1], "ledger.db")
}

// copyLedger copies the ledger. From then on its daemon decides nothing: it keeps no counts through the
// restart that putting the copy back takes.
func (s *site) copyLedger() {
	s.Helper()
	s.ledger.stop()
	data, err := os.ReadFile(s.ledgerFile())
	if err != nil {
		s.Fatal(err)
	}
	s.write("copy", string(data))
	s.copied, s.idle = s.now(), true
	s.startLedger()
}

// restoreLedger puts the copy back. What is missing is sent again: counts by the replicas, answers by the
// readers.
func (s *site) restoreLedger() {
	s.Helper()
	s.ledger.stop()
	if err := os.Rename(s.path("copy"), s.ledgerFile()); err != nil {
		s.Fatal(err)
	}
	s.readers.forget(s.copied)
	s.startLedger()
	s.idle = false
	s.told()
}

// delete deletes the outcomes of the first days.
func (s *site) delete(days int) {
	s.Helper()
	before := s.begun.Add(time.Duration(days) * day)
	s.command("outcomes", "delete", "--addr", s.ledger.GRPC[0], "--before", before.Format(time.DateOnly), "--reason", "no longer needed", "--by", "ann")
	for _, p := range s.account.told {
		for _, d := range p.decisions {
			d.deleted = d.deleted || d.at.Before(before)
		}
	}
}

// startLedger starts the ledger, whose counters begin at zero.
func (s *site) startLedger() {
	s.Helper()
	s.account.statuses = map[string]int{}
	s.ledger.start()
	s.list() // takes what is mature into the evidence
}

// expectAlarm waits until all daemons say that an alarm of the model is up, or that none is, and expects
// from then on that inputs called safe are deferred, or are not.
func (s *site) expectAlarm(up bool) {
	s.Helper()
	var otherwise []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		otherwise = nil
		for _, n := range s.nodes() {
			if why := n.model().GetDeferring(); up != strings.HasPrefix(why, "An alarm on the critical ") {
				otherwise = append(otherwise, fmt.Sprintf("%s: %q", n.name, why))
			}
		}
		if len(otherwise) == 0 {
			break
		}
		if time.Now().After(end) {
			s.Fatalf("the alarm is up: %v, expected %v, on\n%s", !up, up, strings.Join(otherwise, "\n"))
		}
	}
	s.defers = never
	if up {
		s.defers = always
	}
}

// clear clears the alarms of the model.
func (s *site) clear() {
	s.Helper()
	up := s.account.evidence(s.now())
	if up[0].raised || up[1].raised {
		s.command("outcomes", "clear", "--addr", s.ledger.GRPC[0], "--model", modelName, "--policy", s.policy, "--model-version", "v1",
			"--reason", "version v1 was repaired", "--by", "ann")
	}
	for i := range up {
		if up[i].raised {
			s.account.cleared[i] = s.now()
		}
	}
	s.expectAlarm(false)
}

// answerAlarm lets the next policy answer the alarm of the FNR, which ends when the policy decides.
func (s *site) answerAlarm() {
	up := s.list()[0].GetMature().GetFigures()[0].GetMonitor()
	if !up.GetRaised() {
		s.Fatal("no alarm of the FNR is up")
	}
	s.answers, s.defers = "critical_fnr "+up.GetRaisedAt().AsTime().Format(time.RFC3339), perhaps
}
