package year

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
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
	// lacks says what the daemon lacks yet to live through the event, which is left out; empty for nothing.
	lacks string
}

// monthly are the policies: one a month of 30 days, of which some differ from the usual one.
var monthly = map[int]terms{
	4: {rate: 0.2, cap: 4, due: 14 * day, fnrLine: 0.3, missRateLine: 0.25, runLength: 1000},
	5: {rate: 0.1, free: true, due: 14 * day, fnrLine: 0.3, missRateLine: 0.25, runLength: 1000},
}

// events are the script of the year, beside the policies.
var events = []event{
	{day: 3, what: "a second model version answers a part of the traffic", do: func(s *site) { s.missing["v2"] = 0.02 }},
	{day: 10, what: "the receipt key is changed", do: (*site).addKey},
	{day: 15, what: "the ledger is away for an hour", do: func(s *site) { s.awayFor(time.Hour) }},
	{day: 20, what: "the clock of a replica goes ten minutes fast", do: func(s *site) { s.replicas[0].setSkew(10 * time.Minute) }},
	{day: 24, what: "the clock of the replica is two hours slow", do: func(s *site) { s.replicas[0].setSkew(-2 * time.Hour) }},
	{day: 27, what: "the clock of the replica is right", do: func(s *site) { s.replicas[0].setSkew(0) }},
	{day: 33, what: "version v1 misses most of what it calls safe", do: func(s *site) { s.missing["v1"], s.defers = 0.6, perhaps }},
	{day: 41, what: "version v1 is repaired", do: func(s *site) { s.missing["v1"] = 0.02 }},
	{day: 55, what: "the alarm is up", do: func(s *site) { s.expectAlarm("v1", true) }},
	{day: 56, what: "a replica loses its state while the ledger is away", do: (*site).forgetAlarm,
		lacks: "a replica that never heard of the ledger retains"},
	{day: 56, what: "the ledger starts in an empty folder", do: (*site).mistakeFolder, lacks: "an empty ledger ends the deferral"},
	{day: 57, what: "the alarm is cleared", do: func(s *site) { s.clear("v1"); s.expectAlarm("v1", false) }},
	{day: 62, what: "readers take critical readings of inputs called safe back", do: (*site).withdraw,
		lacks: "a reading that its source takes back counts as blind"},
	{day: 64, what: "the ledger goes away", do: func(s *site) { s.ledger.stop() },
		lacks: "counts of decisions older than two days are not told again"},
	{day: 68, what: "the ledger comes back", do: (*site).startLedger, lacks: "counts of decisions older than two days are not told again"},
	{day: 70, what: "the ledger is killed and comes back", do: func(s *site) { s.ledger.kill(); s.startLedger() }},
	{day: 72, what: "a replica is killed and comes back", do: func(s *site) { s.replicas[1].kill(); s.replicas[1].start() }},
	{day: 85, what: "the disk of the ledger is full", do: func(s *site) { s.fillDisk(true) }},
	{day: 86, what: "the disk of the ledger has room again", do: func(s *site) { s.fillDisk(false) }},
	{day: 95, what: "the receipt key is changed again", do: (*site).addKey},
	{day: 100, what: "the retired receipt keys are lost", do: (*site).loseKeys},
}

// TestYear lets a site live through a year, and compares all that it says with an account of what
// happened every week. CKD_YEAR_SEED repeats a run, CKD_YEAR_DAYS ends it earlier, and CKD_YEAR_WITH is a
// regular expression of events to live through although the daemon lacks something for them.
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
	s.missing["v1"] = 0.02
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
}

// liveThrough is a day of the site: what happens to it, traffic, and answers of readers.
func (s *site) liveThrough(n int) {
	s.Helper()
	morning := s.begun.Add(time.Duration(n) * day)
	s.setTime(morning.Add(8 * time.Hour))
	if month := n / 30; month > 0 && n%30 == 0 {
		t, different := monthly[month]
		if !different {
			t = usual
		}
		s.writePolicy(month, t)
	}
	with := regexp.MustCompile(cmp.Or(os.Getenv("CKD_YEAR_WITH"), "^$"))
	for _, e := range events {
		switch {
		case e.day != n:
		case e.lacks != "" && !with.MatchString(e.what):
			s.Logf("day %d: left out: %s: %s", n, e.what, e.lacks)
		default:
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
	versions := []string{"v1"}
	if _, two := s.missing["v2"]; two {
		versions = append(versions, "v2")
	}
	for _, n := range s.nodes() {
		for _, version := range versions {
			batch := s.traffic(version, inputs/len(versions))
			if version == "v1" {
				batch = append(batch, s.old...)
				s.old = slices.Clone(batch[:1])
			}
			n.decide(version, batch)
		}
	}
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
		list, err := s.ledger.Outcomes().ListPromises(s.Context(), &ckdv1.ListPromisesRequest{})
		if err != nil {
			s.Fatal(err)
		}
		got = 0
		for _, p := range list.GetPromises() {
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

// withdraw has readers take back the critical readings of inputs that the model called safe, of which there
// are more from now on.
func (s *site) withdraw() { s.readers.withdraw, s.missing["v1"], s.defers = 1, 0.1, perhaps }

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
	replica.decide("v1", s.traffic("v1", 10))
	s.startLedger()
	s.expectAlarm("v1", true)
}

// mistakeFolder starts the ledger in an empty folder while an alarm is up, and then in its own again. What
// is called safe is deferred as before.
func (s *site) mistakeFolder() {
	s.Helper()
	s.ledger.stop()
	own := s.ledger.args
	s.ledger.args = append(slices.Clip(own[:len(own)-1]), s.path("typo"))
	s.ledger.start()
	heard := s.ledger.model()
	testbed.Eventually(s.T, "the replicas have heard of the empty ledger", func() bool {
		return !slices.ContainsFunc(s.replicas, func(n *node) bool { return n.Metrics().Sum("ckd_ledger_state_age_seconds") > 1 })
	})
	for _, n := range s.replicas {
		n.decide("v1", s.traffic("v1", 10))
	}
	s.Logf("an empty ledger says %v", heard.GetPromises())
	s.ledger.stop()
	s.ledger.args = own
	s.startLedger()
	s.expectAlarm("v1", true)
}

// startLedger starts the ledger, whose counters begin at zero.
func (s *site) startLedger() {
	s.Helper()
	s.account.statuses = map[string]int{}
	s.ledger.start()
}

// expectAlarm waits until all daemons say that the alarm of a model version under the policy in force is up,
// or is not, and expects from then on that inputs called safe are deferred, or are not.
func (s *site) expectAlarm(version string, up bool) {
	s.Helper()
	var otherwise []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		otherwise = nil
		for _, n := range s.nodes() {
			alarm := func(p *ckdv1.Promise) bool { return p.GetModelVersion() == version && p.GetAlarm() }
			if up != slices.ContainsFunc(n.model().GetPromises(), alarm) {
				otherwise = append(otherwise, fmt.Sprintf("%s: %v", n.name, n.model().GetPromises()))
			}
		}
		if len(otherwise) == 0 {
			break
		}
		if time.Now().After(end) {
			s.Fatalf("the alarm of version %s is up: %v, expected %v, on\n%s", version, !up, up, strings.Join(otherwise, "\n"))
		}
	}
	s.defers = never
	if up {
		s.defers = always
	}
}

// clear clears the alarm of a model version under the policy in force.
func (s *site) clear(version string) {
	s.Helper()
	s.command("outcomes", "clear", "--addr", s.ledger.GRPC[0], "--model", modelName, "--policy", s.policy, "--model-version", version,
		"--reason", fmt.Sprintf("version %s was repaired", version), "--by", "ann")
	p := s.account.promises[promiseKey{s.policy, version}]
	for i := range p.cleared {
		if p.evidence(s.now(), i == 1).raised {
			p.cleared[i] = s.now()
		}
	}
}
