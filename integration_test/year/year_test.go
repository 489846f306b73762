package year

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestYear lets a site live through a year, and compares all that it says with an account of what
// happened, at each event and each evening. CKD_YEAR_SEED repeats a run, and CKD_YEAR_DAYS ends it earlier.
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
	s.missing["v1"] = usually
	for s.day = range days {
		s.liveThrough()
		if s.day%7 == 6 || s.day == days-1 {
			s.compare((*comparison).figures, (*comparison).text, (*comparison).export)
		} else {
			s.compare()
		}
	}
	s.command("outcomes", "verify", "--ledger", s.ledgerFolder(), "--receipt-keys", s.path("ledger.keys"))
	s.expectVariety(days)
}

// expectVariety fails the test if the days lacked what they are to have.
func (s *site) expectVariety(days int) {
	s.Helper()
	s.Logf("verdicts: %v", s.verdicts)
	if days >= 100 && s.verdicts[ckdv1.Verdict_VERDICT_HOLDING] == 0 {
		s.Error("no promise ever held")
	}
	for month := range days / 30 {
		s.Logf("month %d: %v", month, s.account.happened[month])
		for _, what := range []string{"doubled", "late", "contradicting", "withdrawn", "second", "third"} {
			if s.account.happened[month][what] == 0 {
				s.Errorf("month %d: no outcome was %s", month, what)
			}
		}
	}
	for what, since := range map[string]int{"not stored": 30, "unknown_key": 52, "deleted": 230, "capped": 40, "capped least": 270} {
		n := 0
		for _, month := range s.account.happened {
			n += month[what]
		}
		if s.Logf("%s: %d", what, n); n == 0 && days >= since {
			s.Errorf("nothing was %s", what)
		}
	}
}

// liveThrough is a day of the site: what happens to it, traffic, and answers of readers.
func (s *site) liveThrough() {
	s.Helper()
	morning := s.begun.Add(time.Duration(s.day) * day)
	s.setTime(morning.Add(8 * time.Hour))
	s.list() // takes what is mature into the evidence
	if month := s.day / 30; month > 0 && s.day%30 == 0 {
		t, different := monthly[month]
		if !different {
			t = usual
		}
		s.writePolicy(month, t)
	}
	for _, e := range events {
		if e.day == s.day {
			s.Logf("day %d: %s", s.day, e.what)
			e.do(s)
			s.compare((*comparison).figures)
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

// compare fails the test unless all that the site says agrees with the account.
func (s *site) compare(further ...func(*comparison)) *comparison {
	s.Helper()
	c := agree(s, further...)
	const most = 40
	for _, found := range c.found[:min(most, len(c.found))] {
		s.Errorf("day %d: %s", s.day, found)
	}
	if len(c.found) > 0 {
		s.Fatalf("day %d: %d disagreements", s.day, len(c.found))
	}
	return c
}

// decideAll has each daemon decide so many inputs of each model version, some of them for a second time.
func (s *site) decideAll(inputs int) {
	s.Helper()
	versions := []string{"v1"}
	if _, two := s.missing["v2"]; two {
		versions = append(versions, "v2")
	}
	deciders := s.nodes()
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

// list returns what the ledger lists; nil while it is down.
func (s *site) list() []*ckdv1.PromiseFigures {
	s.Helper()
	if s.ledger.Daemon == nil {
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
	for d := range s.account.all() {
		if !d.untold {
			want++
		}
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

// startLedger starts the ledger, whose counters begin at zero.
func (s *site) startLedger() {
	s.Helper()
	s.account.statuses = map[string]int{}
	s.ledger.start()
	s.list() // takes what is mature into the evidence
}
