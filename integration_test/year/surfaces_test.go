package year

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// agree compares what the daemons of the site say with the account, and further surfaces of a ledger that is
// up. Nothing may be sent meanwhile.
func agree(s *site, further ...func(*comparison)) *comparison {
	s.Helper()
	c := &comparison{site: s, at: s.now()}
	if s.ledger.Daemon != nil {
		c.wait(c.list)
		c.wait(c.metrics)
	}
	for _, n := range s.nodes() {
		c.wait(func() { c.node(n) })
		c.wait(func() { c.series(n) })
		c.wait(func() { c.page(n) })
	}
	if s.ledger.Daemon != nil {
		for _, surface := range further {
			c.wait(func() { surface(c) })
		}
	}
	c.found = slices.Concat(s.account.problems, c.found)
	s.account.problems = nil
	return c
}

// wait looks at a surface until it agrees, and notes what still does not after a while.
func (c *comparison) wait(surface func()) {
	const patience = 10 * time.Second
	before := len(c.found)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c.found = c.found[:before]
		surface()
		if len(c.found) == before || time.Now().After(end) {
			return
		}
	}
}

// comparison is one look at all surfaces.
type comparison struct {
	*site
	at       time.Time
	promises map[promiseKey]*ckdv1.PromiseFigures // as the ledger lists them
	evidence [watches]evidence                    // of the account
	found    []string
}

func (c *comparison) differ(where, format string, args ...any) {
	c.found = append(c.found, where+": "+fmt.Sprintf(format, args...))
}

// equal compares a number with the account's. NaN stands for unknown.
func (c *comparison) equal(where, what string, got, want float64) {
	if got != want && !(math.Abs(got-want) <= 1e-9*math.Abs(want)) && !(math.IsNaN(got) && math.IsNaN(want)) {
		c.differ(where, "%s is %v, expected %v", what, got, want)
	}
}

// list compares what the ledger lists with the account.
func (c *comparison) list() {
	c.promises, c.evidence = byKey(c.site.list()), c.account.evidence(c.at)
	for k := range c.promises {
		if c.account.promises[k] == nil {
			c.differ("ledger", "%v is listed, and nothing was decided", k)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.account.promises), func(a, b promiseKey) int {
		return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(a.policy, b.policy))
	}) {
		if p := c.promises[k]; p == nil {
			c.differ("ledger", "%v is not listed", k)
		} else {
			c.promise(k.String(), p, c.account.promises[k])
		}
	}
}

// byKey returns figures by the promises that they are of.
func byKey(list []*ckdv1.PromiseFigures) map[promiseKey]*ckdv1.PromiseFigures {
	all := map[promiseKey]*ckdv1.PromiseFigures{}
	for _, p := range list {
		all[promiseKey{p.GetPromise().GetPolicy().GetHash(), p.GetPromise().GetModelVersion()}] = p
	}
	return all
}

// figures compares what ckd outcomes figures prints with what the ledger lists.
func (c *comparison) figures() {
	const where = "outcomes figures"
	printed := &ckdv1.ListPromisesResponse{}
	if err := protojson.Unmarshal([]byte(c.command("outcomes", "figures", "--addr", c.ledger.GRPC[0], "--format", "json")), printed); err != nil {
		c.Fatalf("%s: %v", where, err)
	}
	if n := len(printed.GetPromises()); n != len(c.promises) {
		c.differ(where, "%d promises, expected %d", n, len(c.promises))
	}
	for k, p := range byKey(printed.GetPromises()) {
		c.same(where, p, c.promises[k])
	}
}

// text looks for each statement among what ckd outcomes figures prints for people.
func (c *comparison) text() {
	text := c.command("outcomes", "figures", "--addr", c.ledger.GRPC[0], "--all")
	for k, p := range c.promises {
		if line := fmt.Sprintf("version %s, policy %.12s: %s\n", k.version, k.policy, p.GetPromise().GetStatement()); !strings.Contains(text, line) {
			c.differ("outcomes figures", "no line %q", line)
		}
	}
}

// same compares figures with those that the ledger lists, which may have been computed at another time.
func (c *comparison) same(where string, got, want *ckdv1.PromiseFigures) {
	if want == nil {
		c.differ(where, "shows a promise that the ledger does not list: %v", got.GetPromise())
		return
	}
	before := want.Promise.Time
	want.Promise.Time = got.Promise.Time
	if !proto.Equal(got, want) {
		c.differ(where, "shows otherwise than the ledger lists: %s", difference(got, want))
	}
	want.Promise.Time = before
}

func (c *comparison) promise(where string, got *ckdv1.PromiseFigures, want *promise) {
	strata := want.strata(c.at)
	for _, g := range got.GetStrata() {
		w, where := &strata[g.GetStratum()], fmt.Sprintf("%s: stratum %v", where, receipt.Stratum(g.GetStratum()))
		for _, n := range []struct {
			what      string
			got, want uint64
		}{
			{"decisions", g.GetDecisions(), w.decisions}, {"eligible", g.GetEligible(), w.decisions}, {"receipts", g.GetReceipts(), w.decisions},
			{"reviews", g.GetReviews(), w.reviews}, {"due", g.GetDue(), w.due}, {"arrived", g.GetArrived(), w.arrived},
			{"overdue", g.GetOverdue(), w.overdue}, {"apart", g.GetApart(), w.apart}, {"untold", g.GetUntold(), w.untold},
		} {
			c.equal(where, n.what, float64(n.got), float64(n.want))
		}
		if math.Abs(g.GetExpected()-w.expected) > 1e-6*w.expected { // receipts hold pi in single precision
			c.differ(where, "the sum of pi is %v, expected %v", g.GetExpected(), w.expected)
		}
	}
	mature, all := want.figures(c.at, false), want.figures(c.at, true)
	c.summary(where+": mature", got.GetMature(), &mature)
	c.summary(where+": all", got.GetProvisional(), &all)
	c.equal(where+": mature", "unconfirmed", float64(got.GetMature().GetReaders().GetUnconfirmed()), float64(mature.unconfirmed))
	c.equal(where+": mature", "missed by the model", float64(got.GetMature().GetReaders().GetMissed()), float64(mature.missed))
	c.equal(where+": mature", "withdrawn", float64(got.GetMature().GetReaders().GetWithdrawn()), float64(mature.withdrawn))
	c.verdict(where, got, want)
}

func (c *comparison) summary(where string, got *ckdv1.OutcomeSummary, want *figures) {
	c.equal(where, "decided", float64(got.GetDecided()), float64(want.decided))
	if n := len(got.GetFigures()); n != watches {
		c.differ(where, "%d figures, expected %d", n, watches)
		return
	}
	for i := range want.risks {
		g, w, where := got.GetFigures()[i], &want.risks[i], fmt.Sprintf("%s: %s", where, watchNames[i])
		c.equal(where, "outcomes", float64(g.GetOutcomes()), float64(w.outcomes))
		c.equal(where, "critical", float64(g.GetCritical()), float64(w.critical))
		c.equal(where, "misses", float64(g.GetMisses()), float64(w.misses))
		c.equal(where, "disputed", float64(g.GetDisputed()), float64(w.disputed))
		value := math.NaN()
		if g.GetAverage() != nil {
			value = g.GetAverage().GetValue()
		}
		c.equal(where, "the estimate", value, w.value())
		if average := g.GetAverage(); average != nil && !(average.GetLow() <= average.GetHigh()) {
			c.differ(where, "the interval is %v to %v", average.GetLow(), average.GetHigh())
		}
	}
	r := got.GetReaders()
	c.equal(where, "second readings wanted", float64(r.GetSecondWanted()), float64(want.wanted))
	c.equal(where, "second readings", float64(r.GetSecondArrived()), float64(want.confirmed))
	c.equal(where, "disputed inputs", float64(r.GetDisputed()), float64(want.disputed))
}

// verdict compares alarms with the account's evidence, and asks whether the verdict may be said.
func (c *comparison) verdict(where string, got *ckdv1.PromiseFigures, want *promise) {
	alarm, violates, doubt := false, false, false
	for i, w := range c.evidence {
		f := got.GetMature().GetFigures()[i]
		g, where := f.GetMonitor(), fmt.Sprintf("%s: alarm of the %s", where, watchNames[i])
		c.equal(where, "the evidence", g.GetEvidence(), w.value)
		line := want.lines[i].on(c.at)
		c.equal(where, "the line", f.GetLine(), line)
		if g.GetRaised() != w.raised {
			c.differ(where, "is up: %v, expected %v", g.GetRaised(), w.raised)
		}
		if w.raised && g.GetRaised() && !g.GetRaisedBy().AsTime().Equal(w.raisedBy) {
			c.differ(where, "was raised by the day %v, expected %v", g.GetRaisedBy().AsTime(), w.raisedBy)
		}
		violates = violates || w.raised
		if watchedClass[i] >= 0 { // a class raises its own alarm, and no more
			continue
		}
		alarm = alarm || w.raised
		doubt = doubt || w.isDoubtful() || f.GetAverage().GetLow() > line || f.GetModelAverage().GetLow() > line
	}
	p := got.GetPromise()
	c.verdicts[p.GetVerdict()]++
	if violated := p.GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED; p.GetAlarm() != alarm || violated != violates {
		c.differ(where, "the verdict is %v, the alarm is up: %v, expected %v", p.GetVerdict(), p.GetAlarm(), alarm)
	}
	if inDoubt := p.GetVerdict() == ckdv1.Verdict_VERDICT_IN_DOUBT; !violates && inDoubt != doubt {
		c.differ(where, "the verdict is %v, it is in doubt: %v", p.GetVerdict(), doubt)
	}
	c.statement(where, got)
	if why := want.mayHold(c.at); why != "" && p.GetVerdict() == ckdv1.Verdict_VERDICT_HOLDING {
		c.differ(where, "the promise is said to hold although %s", why)
	}
}

// opening are the words that a statement begins with, by verdict.
var opening = map[ckdv1.Verdict][]string{
	ckdv1.Verdict_VERDICT_VIOLATED: {"Alarm since "},
	ckdv1.Verdict_VERDICT_IN_DOUBT: {"Whether the promise holds is in doubt: "},
	ckdv1.Verdict_VERDICT_HOLDING:  {"The promise holds. "},
	ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES: {"Too few outcomes to tell whether the promise holds", "The alarm was cleared on ",
		"Whether the promise holds is not known: "},
}

// statement compares what is said of a promise in words with its verdict, the alarms and the counts.
func (c *comparison) statement(where string, p *ckdv1.PromiseFigures) {
	said := p.GetPromise().GetStatement()
	if !slices.ContainsFunc(opening[p.GetPromise().GetVerdict()], func(words string) bool { return strings.HasPrefix(said, words) }) {
		c.differ(where, "the verdict is %v, the statement: %s", p.GetPromise().GetVerdict(), said)
	}
	var counts []string
	for i, name := range watchNames {
		if up := strings.Contains(said, "the "+name+" is above "); up != c.evidence[i].raised {
			c.differ(where, "the alarm of the %s is up: %v, the statement: %s", name, c.evidence[i].raised, said)
		}
		f := p.GetMature().GetFigures()[i]
		counts = append(counts, fmt.Sprintf(", by %d outcomes, %d of them critical", f.GetOutcomes(), f.GetCritical()))
	}
	if strings.Contains(said, " of them critical") && !slices.ContainsFunc(counts, func(n string) bool { return strings.Contains(said, n) }) {
		c.differ(where, "expected %q, the statement: %s", counts, said)
	}
}

// node compares what a daemon says about the policy in force in GetModel and /healthz.
func (c *comparison) node(n *node) {
	m := n.model()
	_, health, _ := n.Get("/healthz")
	if said := strings.Contains(health, "has not answered"); said == c.answers() {
		c.differ(n.name, "/healthz says that the ledger is away: %v, expected %v:\n%s", said, !said, health)
	}
	heard, violated, inForce := c.heard(), false, 0
	for k, p := range heard {
		if k.policy != c.policy {
			continue
		}
		inForce++
		if p.GetPromise().GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED {
			violated = true
			if !strings.Contains(health, p.GetPromise().GetStatement()) {
				c.differ(n.name, "/healthz does not say of %v: %s\n%s", k, p.GetPromise().GetStatement(), health)
			}
		}
	}
	for _, p := range m.GetPromises() {
		want := heard[promiseKey{m.GetPolicy().GetHash(), p.GetModelVersion()}]
		if want == nil || !sameButTime(p, want.GetPromise()) {
			c.differ(n.name, "GetModel has the promise\n%v\nand the ledger\n%v", p, want.GetPromise())
		}
	}
	if len(m.GetPromises()) != inForce {
		c.differ(n.name, "GetModel has %d promises, the ledger %d", len(m.GetPromises()), inForce)
	}
	if said := strings.Contains(health, ": Alarm since "); said != violated {
		c.differ(n.name, "/healthz says that an alarm is up: %v, expected %v:\n%s", said, violated, health)
	}
	if said := strings.Contains(health, "cannot be written"); said != (c.full && n == c.ledger) {
		c.differ(n.name, "/healthz says that the ledger cannot be written: %v, expected %v:\n%s", said, !said, health)
	}
}

// heard returns what the daemons know of promises: what the ledger lists, or listed when it last answered.
func (c *comparison) heard() map[promiseKey]*ckdv1.PromiseFigures {
	if c.answers() {
		return c.promises
	}
	return c.listed
}

// answers reports whether the ledger answers its daemons. While it cannot write it does not, for they have
// decisions to tell of.
func (c *comparison) answers() bool { return c.ledger.Daemon != nil && !c.full }

// series compares the series of a daemon that say what is wrong between it and the ledger, which alarms are
// up, and what it has issued.
func (c *comparison) series(n *node) {
	isSkewed := func(n *node) bool { return n.skew != 0 }
	answers := c.answers()
	expected := map[string]bool{"away": !answers, "clock": answers && isSkewed(n)}
	if n == c.ledger {
		expected["replicas"] = answers && (c.lags || slices.ContainsFunc(c.replicas, isSkewed))
		expected["disk"] = c.full
	} else {
		expected["receipt_key"] = answers && c.lags
	}
	m := n.Metrics()
	for _, fault := range []string{"away", "unheard", "other_ledger", "clock", "receipt_key", "policy", "state", "replicas", "disk"} {
		got, found := m.Value("ckd_ledger_fault", "fault", fault)
		if !found || (got == 1) != expected[fault] {
			c.differ(n.name, "ckd_ledger_fault for %s is %v, expected %v", fault, got, expected[fault])
		}
	}
	for i, name := range watchNames {
		figure, class := "critical_miss_rate", ""
		if i == ofFNR {
			figure = "critical_fnr"
		}
		if k := watchedClass[i]; k >= 0 {
			class = classes[k]
		}
		raised, _ := m.Value("ckd_alarm_raised_timestamp_seconds", "figure", figure, "class", class)
		ended, _ := m.Value("ckd_alarm_ended_timestamp_seconds", "figure", figure, "class", class)
		if up := raised > 0 && ended == 0; c.ledger.Daemon != nil && up != c.evidence[i].raised {
			c.differ(n.name, "the alarm of the %s was raised at %v and ended at %v, it is up: %v", name, raised, ended, !up)
		}
	}
	exceeded := 0
	for stratum := receipt.Deferred; stratum <= receipt.CalledSafe; stratum++ {
		i := cmp.Or(n.issued[stratum], &issued{})
		exceeded += i.exceeded
		c.equal(n.name, "ckd_receipts_eligible_total", m.Sum("ckd_receipts_eligible_total", "stratum", stratum.String()), float64(i.inputs))
		c.equal(n.name, "ckd_reviews_total", m.Sum("ckd_reviews_total", "stratum", stratum.String()), float64(i.reviews))
		c.equal(n.name, "ckd_audit_propensity_total", m.Sum("ckd_audit_propensity_total", "stratum", stratum.String()), i.expected)
	}
	c.equal(n.name, "ckd_audit_cap_exceeded_total", m.Sum("ckd_audit_cap_exceeded_total"), float64(exceeded))
}

func sameButTime(a, b *ckdv1.Promise) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.Time, b.Time = nil, nil
	return proto.Equal(a, b)
}

// page compares the promises that the triage page shows.
func (c *comparison) page(n *node) {
	listed := c.heard()
	if n == c.ledger { // it reads the ledger itself
		listed = c.promises
	}
	_, text, _ := n.Get("/triage/state?model=" + modelName)
	var state struct {
		Model struct{ Promises []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		c.Fatalf("%s: %v", n.name, err)
	}
	missing := 0
	for k := range listed {
		if k.policy == c.policy {
			missing++
		}
	}
	for _, text := range state.Model.Promises {
		shown := &ckdv1.PromiseFigures{}
		if err := protojson.Unmarshal(text, shown); err != nil {
			c.Fatalf("%s: %v", n.name, err)
		}
		c.same(n.name+": the page", shown, listed[promiseKey{shown.GetPromise().GetPolicy().GetHash(), shown.GetPromise().GetModelVersion()}])
		missing--
	}
	if missing != 0 {
		c.differ(n.name, "the page shows %d promises too few", missing)
	}
}

// difference names the fields in which two messages differ.
func difference(a, b proto.Message) string {
	var fields []string
	ra, rb := a.ProtoReflect(), b.ProtoReflect()
	for i := range ra.Descriptor().Fields().Len() {
		f := ra.Descriptor().Fields().Get(i)
		if !ra.Get(f).Equal(rb.Get(f)) {
			fields = append(fields, string(f.Name()))
		}
	}
	return strings.Join(fields, ", ")
}

// metrics compares the series of the ledger with what it lists, and its counters with the answers.
func (c *comparison) metrics() {
	m, where := c.ledger.Metrics(), "/metrics"
	figure := map[ckdv1.CertifiedFigure]string{
		ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR:       "critical_fnr",
		ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE: "critical_miss_rate",
	}
	expected := map[string]int{}
	series := func(name string, want float64, labels ...string) {
		got, found := m.Value(name, labels...)
		expected[name]++
		if !found {
			c.differ(where, "no %s%v", name, labels)
			return
		}
		c.equal(where, fmt.Sprint(name, labels), got, want)
	}
	for k, p := range c.promises {
		labels := []string{"model", modelName, "policy", k.policy, "version", k.version}
		with := func(more ...string) []string { return slices.Concat(labels, more) }
		for verdict, name := range map[ckdv1.Verdict]string{
			ckdv1.Verdict_VERDICT_NO_LINE: "no_line", ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES: "too_few_outcomes",
			ckdv1.Verdict_VERDICT_HOLDING: "holding", ckdv1.Verdict_VERDICT_VIOLATED: "violated",
			ckdv1.Verdict_VERDICT_IN_DOUBT: "in_doubt",
		} {
			present := 0.0
			if p.GetPromise().GetVerdict() == verdict {
				present = 1
			}
			series("ckd_promise_state", present, with("verdict", name)...)
		}
		for _, s := range p.GetStrata() {
			stratum := receipt.Stratum(s.GetStratum()).String()
			series("ckd_promise_reviews", float64(s.GetReviews()), with("stratum", stratum, "state", "issued")...)
			series("ckd_promise_reviews", float64(s.GetDue()), with("stratum", stratum, "state", "due")...)
			series("ckd_promise_reviews", float64(s.GetArrived()), with("stratum", stratum, "state", "answered")...)
			if share := s.GetLateLately().GetShare(); share != nil {
				series("ckd_outcomes_overdue_ratio", share.GetValue(), with("stratum", stratum)...)
			}
		}
		for _, f := range p.GetMature().GetFigures() {
			of := with("figure", figure[f.GetFigure()], "class", f.GetCriticalClass())
			if f.GetAverage() != nil {
				series("ckd_promise", f.GetAverage().GetValue(), append(of, "bound", "estimate")...)
				series("ckd_promise", f.GetAverage().GetLow(), append(of, "bound", "low")...)
				series("ckd_promise", f.GetAverage().GetHigh(), append(of, "bound", "high")...)
			}
			if f.Line != nil {
				series("ckd_promise", f.GetLine(), append(of, "bound", "line")...)
				series("ckd_promise_evidence", f.GetMonitor().GetLogEvidence(), of...)
			}
			if since := f.GetMonitor().GetSince(); since != nil {
				series("ckd_promise_since_timestamp_seconds", float64(since.GetSeconds()), of...)
			}
			if rate := f.GetMonitor().GetSinceRate().GetShare(); rate != nil {
				series("ckd_promise", rate.GetValue(), append(of, "bound", "since")...)
			}
		}
	}
	for name, n := range expected {
		if got := m.Count(name); got != n {
			c.differ(where, "%d series %s, expected %d", got, name, n)
		}
	}
	if failed, _ := m.Value("ckd_ledger_failed_writes_total"); c.full && failed == 0 {
		c.differ(where, "no write has failed, and the disk is full")
	}
	for status, n := range c.account.statuses {
		c.equal(where, "outcomes answered as "+status, m.Sum("ckd_outcomes_total", "status", status), float64(n))
	}
}

// exported is a line of an export.
type exported struct {
	ID, Policy, Version, Stratum, Predicted string
	Time                                    time.Time
	Propensity                              float64
	Reviewed, Duplicate, Disputed, Mature   bool
	Truth                                   *string
	Readings                                []struct{ Source, Truth string }
}

// export compares every exported decision with the account.
func (c *comparison) export() {
	if c.ledger.Daemon == nil {
		return
	}
	r := c.command("outcomes", "export", "--addr", c.ledger.GRPC[0])
	lines := map[string]*exported{}
	for decoder := json.NewDecoder(strings.NewReader(r)); decoder.More(); {
		e := &exported{}
		if err := decoder.Decode(e); err != nil {
			c.Fatal(err)
		}
		lines[e.ID] = e
	}
	const where = "export"
	for k, p := range c.account.promises {
		for _, d := range p.decisions {
			e := lines[hex.EncodeToString(d.number[:])]
			delete(lines, hex.EncodeToString(d.number[:]))
			switch {
			case d.deleted && e != nil:
				c.differ(where, "%s of %v is there, and was deleted", d.id, k)
			case d.deleted, e == nil && len(d.readings) == 0:
			case e == nil:
				c.differ(where, "%s of %v is missing", d.id, k)
			case len(d.readings) == 0:
				c.differ(where, "%s of %v is there without a reading", d.id, k)
			default:
				c.line(where+": "+d.id, k, d, e)
			}
		}
	}
	if len(lines) > 0 {
		c.differ(where, "%d lines are of no decision", len(lines))
	}
}

func (c *comparison) line(where string, k promiseKey, d *decision, e *exported) {
	f := d.find(endOfTime)
	for _, n := range []struct{ what, got, want string }{
		{"policy", e.Policy, k.policy}, {"version", e.Version, k.version}, {"stratum", e.Stratum, d.stratum.String()},
		{"predicted", e.Predicted, classes[d.predicted]},
		{"time", e.Time.String(), d.at.String()},
		{"propensity", fmt.Sprint(e.Propensity), fmt.Sprint(d.pi)}, {"reviewed", fmt.Sprint(e.Reviewed), fmt.Sprint(d.reviewed())},
		{"duplicate", fmt.Sprint(e.Duplicate), fmt.Sprint(d.duplicate(endOfTime))},
		{"disputed", fmt.Sprint(e.Disputed), fmt.Sprint(f.disputed())}, {"mature", fmt.Sprint(e.Mature), fmt.Sprint(d.isMature(c.at))},
		{"readings", fmt.Sprint(len(e.Readings)), fmt.Sprint(len(d.readings))}, {"a truth", fmt.Sprint(e.Truth != nil), fmt.Sprint(f.known())},
	} {
		if n.got != n.want {
			c.differ(where, "%s %s, expected %s", n.what, n.got, n.want)
		}
	}
	if e.Truth != nil && f.known() && !f.disputed() && isCritical(slices.Index(classes, *e.Truth)) != f.critical {
		c.differ(where, "the truth is %s, expected a critical class: %v", *e.Truth, f.critical)
	}
}

// command runs a command of ckd at the site's time, which must succeed.
func (s *site) command(args ...string) (stdout string) {
	s.Helper()
	r := s.run(args)
	if r.Code != 0 {
		s.Fatalf("ckd %s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r.Stdout
}

// refused runs a command of ckd that must fail, and say why.
func (s *site) refused(why string, args ...string) {
	s.Helper()
	if r := s.run(args); r.Code != 1 || !strings.Contains(r.Stderr, why) {
		s.Errorf("ckd %s: exit %d, expected 1 and %q\n%s%s", strings.Join(args, " "), r.Code, why, r.Stdout, r.Stderr)
	}
}

func (s *site) run(args []string) testbed.Result {
	c := exec.CommandContext(s.Context(), s.binary, args...)
	c.Env = append(os.Environ(), clockVariable+"="+s.path(s.ledger.name+".clock"))
	return testbed.Run(s.T, c)
}
