package year

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// An event happens to the site on the morning of a day, counted from 0, before anything is decided.
type event struct {
	day  int
	what string
	do   func(*site)
}

// usual is what the policies promise. There is one a month of 30 days, of which monthly differ.
var usual = terms{rate: 0.5, due: 14 * day, missRateLine: 0.25, fnrLine: 0.3, runLength: 2e6}

// classLine is the line of each critical class under all policies, which no alarm reaches.
const classLine = 0.9

var monthly = map[int]terms{
	1: {rate: 0.5, cap: 12, due: 14 * day, missRateLine: 0.24, fnrLine: 0.3, runLength: 2e6},
	5: {rate: 0.3, free: true, due: 14 * day, missRateLine: 0.25, fnrLine: 0.3, runLength: 2e6},
	8: {rate: 0.4, cap: 1.5, free: true, due: 14 * day, missRateLine: 0.24, fnrLine: 0.28, runLength: 2e6},
}

// events are the script of the year, beside the policies. Its first 56 days have nearly every kind.
var events = []event{
	{1, "a second model version answers a part of the traffic", func(s *site) { s.missing["v2"] = usually }},
	{2, "the receipt key is changed", (*site).addKey},
	{3, "the ledger is away for an hour", func(s *site) { s.awayFor(time.Hour) }},
	{4, "the clock of a replica goes ten minutes fast", func(s *site) { s.replicas[0].setSkew(10 * time.Minute) }},
	{5, "the clock of the replica is two hours slow", func(s *site) { s.replicas[0].setSkew(-2 * time.Hour) }},
	{6, "version v1 misses most of what it calls safe", (*site).breach},
	{7, "the ledger is backed up", (*site).backUp},
	{8, "the clock of the replica is right", func(s *site) { s.replicas[0].setSkew(0) }},
	{10, "the ledger is killed and comes back", func(s *site) { s.ledger.kill(); s.startLedger() }},
	{11, "version v1 is repaired", func(s *site) { s.missing["v1"] = usually }},
	{12, "a replica is killed and comes back", func(s *site) { s.replicas[1].kill(); s.replicas[1].start() }},
	{14, "the disk of the ledger is full", func(s *site) { s.fillDisk(true) }},
	{16, "the disk of the ledger has room again", func(s *site) { s.fillDisk(false) }},
	{25, "the alarm is up", func(s *site) { s.expectAlarm(true) }},
	{26, "the backup of the time before the alarm is restored", (*site).restore},
	{27, "a replica loses its state while the ledger is away", (*site).forgetAlarm},
	{28, "another ledger is begun in place of the ledger", (*site).mistakeFolder},
	{33, "the alarm is cleared", (*site).clear},
	{34, "readers take back that the model missed", func(s *site) { s.withdraw(1, 0.05) }},
	{36, "the ledger goes away", (*site).leave},
	{43, "the ledger comes back", (*site).startLedger},
	{45, "readers stand by what they say", func(s *site) { s.withdraw(0, usually) }},
	{46, "the line of the miss rate is raised", func(s *site) { s.raise(0.27) }},
	{47, "the receipt key is changed again", (*site).addKey},
	{48, "the outcomes of the first 33 days are deleted", func(s *site) { s.delete(33) }},
	{51, "the replicas seal by a key that the ledger lacks", func(s *site) { s.addKeyLate(true) }},
	{52, "the ledger gets the key", func(s *site) { s.addKeyLate(false) }},
	{54, "the retired receipt keys are lost", (*site).loseKeys},

	{70, "the ledger is backed up", (*site).backUp},
	{74, "the backup is restored", (*site).restore},
	{95, "the clock of a replica goes three minutes fast for a week", func(s *site) { s.replicas[1].setSkew(3 * time.Minute) }},
	{102, "the clock of the replica is right", func(s *site) { s.replicas[1].setSkew(0) }},
	{110, "the receipt key is changed", (*site).addKey},
	{135, "version v1 misses most of what it calls safe", (*site).breach},
	{141, "version v1 is repaired", func(s *site) { s.missing["v1"] = usually }},
	{158, "the alarm is up", func(s *site) { s.expectAlarm(true) }},
	{159, "the ledger is backed up", (*site).backUp},
	{161, "the disk of the ledger is full", func(s *site) { s.fillDisk(true) }},
	{163, "the disk of the ledger has room again", func(s *site) { s.fillDisk(false) }},
	{164, "the backup is restored while the alarm is up", (*site).restore},
	{166, "a replica is killed and comes back", func(s *site) { s.replicas[0].kill(); s.replicas[0].start() }},
	{170, "the next policy answers the alarm", (*site).answerAlarm},
	{182, "what is still up is cleared", (*site).clear},
	{190, "the receipt keys but the newest are lost", (*site).loseKeys},
	{200, "the outcomes of the first 184 days are deleted", func(s *site) { s.delete(184) }},
	{215, "readers take back that the model missed", func(s *site) { s.withdraw(1, 0.05) }},
	{222, "readers stand by what they say", func(s *site) { s.withdraw(0, usually) }},
	{225, "the ledger goes away", (*site).leave},
	{232, "the ledger comes back", (*site).startLedger},
	{250, "the clock of a replica goes two hours slow for a week", func(s *site) { s.replicas[0].setSkew(-2 * time.Hour) }},
	{257, "the clock of the replica is right", func(s *site) { s.replicas[0].setSkew(0) }},
	{262, "the replicas seal by a key that the ledger lacks", func(s *site) { s.addKeyLate(true) }},
	{266, "the ledger gets the key", func(s *site) { s.addKeyLate(false) }},
	{275, "version v1 misses most of what it calls safe", (*site).breach},
	{281, "version v1 is repaired", func(s *site) { s.missing["v1"] = usually }},
	{282, "the ledger is backed up", (*site).backUp},
	{298, "the alarm is up", func(s *site) { s.expectAlarm(true) }},
	{299, "the backup of the time before the alarm is restored", (*site).restore},
	{302, "a replica loses its state while the ledger is away", (*site).forgetAlarm},
	{305, "the alarm is cleared", (*site).clear},
	{320, "the receipt key is changed", (*site).addKey},
	{325, "the ledger is away for an hour", func(s *site) { s.awayFor(time.Hour) }},
	{335, "the disk of the ledger is full", func(s *site) { s.fillDisk(true) }},
	{336, "the disk of the ledger has room again", func(s *site) { s.fillDisk(false) }},
	{340, "the retired receipt keys are lost", (*site).loseKeys},
	{350, "the outcomes of the first 300 days are deleted", func(s *site) { s.delete(300) }},
	{355, "the ledger is killed and comes back", func(s *site) { s.ledger.kill(); s.startLedger() }},
}

// usually is the share of the inputs called safe that are critical.
const usually = 0.01

// breach has version v1 miss so much that the alarm will be up, some day.
func (s *site) breach() { s.missing["v1"], s.defers = 0.6, perhaps }

// withdraw has readers take back a part of the critical readings of inputs that the model called safe, of
// which some share is critical from now on.
func (s *site) withdraw(part, missing float64) {
	s.readers.withdraw, s.missing["v1"], s.defers = part, missing, perhaps
}

// leave stops the ledger. The daemons say so after a minute.
func (s *site) leave() {
	s.Helper()
	s.listed = s.compare().promises
	s.ledger.stop()
	s.setTime(s.now().Add(2 * time.Minute))
}

// awayFor stops the ledger and starts it again after a time, in which the replicas decide.
func (s *site) awayFor(d time.Duration) {
	s.Helper()
	s.leave()
	s.decideAll(10)
	s.setTime(s.now().Add(d))
	s.compare()
	s.startLedger()
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
	testbed.Eventually(s.T, "the daemons say that it is another ledger", func() bool {
		return !slices.ContainsFunc(s.nodes(), func(n *node) bool { return n.Metrics().Sum("ckd_ledger_fault", "fault", "other_ledger") != 1 })
	})
	for _, n := range s.replicas {
		n.decide("v1", s.traffic("v1", 10))
	}
	s.ledger.stop()
	s.ledger.args = own
	s.startLedger()
	s.expectAlarm(true)
}

// backUp copies the ledger while it serves.
func (s *site) backUp() {
	s.Helper()
	s.command("outcomes", "backup", "--ledger", s.ledgerFolder(), "--out", s.path("backup.db"))
	s.backedUp = s.now()
	if at, _ := s.ledger.Metrics().Value("ckd_ledger_backup_timestamp_seconds"); math.Abs(at-float64(s.backedUp.Unix())) > 60 {
		s.Errorf("the last backup is said to be of %v, it is of %v", time.Unix(int64(at), 0).UTC(), s.backedUp)
	}
}

// restore puts the backup in place of the ledger. What is missing is sent again: counts and alarms by the
// daemons, also those of processes that have ended since, answers by the readers.
func (s *site) restore() {
	s.Helper()
	alarms := s.raised()
	restore := []string{"outcomes", "restore", "--from", s.path("backup.db"), "--ledger", s.ledgerFolder(), "--by", "ann", "--reason", "the disk failed"}
	s.refused("a daemon has the ledger open", restore...)
	s.ledger.stop()
	s.refused("later transactions", restore...)
	s.command(append(restore, "--set-aside")...)
	s.command("outcomes", "verify", "--ledger", s.ledgerFolder(), "--receipt-keys", s.path("ledger.keys"))
	s.readers.forget(s.backedUp)
	for i, e := range s.account.evidence(s.now()) {
		if !e.raised { // by what the copy has: the replicas remember it
			s.account.recalled[i] = alarms[i]
		}
	}
	s.ledger.start()
	s.account.statuses = map[string]int{}
	s.told()
	if alarms != [watches]time.Time{} {
		s.expectAlarm(true)
	}
	s.compare((*comparison).export)
}

// delete deletes the outcomes of the first days.
func (s *site) delete(days int) {
	s.Helper()
	before := s.begun.Add(time.Duration(days) * day)
	s.command("outcomes", "delete", "--addr", s.ledger.GRPC[0], "--before", before.Format(time.DateOnly), "--reason", "no longer needed", "--by", "ann")
	for d := range s.account.all() {
		d.deleted = d.deleted || d.at.Before(before)
	}
	s.compare((*comparison).export)
}

// raise raises the line of the miss rate.
func (s *site) raise(above float64) {
	s.Helper()
	raise := []string{"outcomes", "raise", "--addr", s.ledger.GRPC[0], "--model", modelName, "--by", "ann", "--reason", "agreed on", "--line"}
	s.refused("expected a higher one", append(slices.Clip(raise), fmt.Sprint(s.account.line(0)))...)
	s.command(append(raise, fmt.Sprint(above))...)
	for _, p := range s.account.told {
		p.lines[0].raised, p.lines[0].at = above, s.now()
	}
}

// clear clears the alarms of the model.
func (s *site) clear() {
	s.Helper()
	up := s.account.evidence(s.now())
	if slices.ContainsFunc(up[:], func(e evidence) bool { return e.raised }) {
		s.command("outcomes", "clear", "--addr", s.ledger.GRPC[0], "--model", modelName, "--policy", s.policy, "--model-version", "v1",
			"--reason", "version v1 was repaired", "--by", "ann")
	}
	for i := range up {
		if up[i].raised {
			s.account.end(i, s.now())
		}
	}
	s.expectAlarm(false)
}

// answerAlarm lets the next policy answer the alarm of the miss rate, which ends when the policy decides.
func (s *site) answerAlarm() {
	s.Helper()
	raised := s.raised()[0]
	if raised.IsZero() {
		s.Fatal("no alarm of the miss rate is up")
	}
	s.answers, s.defers = "critical miss rate "+raised.Format(time.RFC3339), perhaps
}

// raised returns when the alarms were raised, as the ledger lists it; zero for those that are not up.
func (s *site) raised() (at [watches]time.Time) {
	s.Helper()
	for i := range at {
		if m := s.list()[0].GetMature().GetFigures()[i].GetMonitor(); m.GetRaised() {
			at[i] = m.GetRaisedAt().AsTime()
		}
	}
	return at
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
