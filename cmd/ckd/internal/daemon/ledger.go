package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/server/outcomes"
	"github.com/ckd-project/ckd/web/triage"
)

const (
	tellEvery    = 2 * time.Second  // between rounds, unless the ledger asks for more
	tellLatest   = time.Minute      // between rounds, whatever the ledger asks for
	tellTime     = 10 * time.Second // timeout of a round
	figuresEvery = 10 * time.Second // between readings of all figures, while somebody looks
	lastTell     = time.Second      // timeout of the first round and of the last
	awayAfter    = time.Minute      // without an answer, until /healthz says so
	clocksApart  = time.Minute      // from then on receipts and cohorts are not where they belong
	processName  = 16               // random bytes
	leastRoom    = 128 << 20        // bytes on the ledger's disk: a write-ahead log, and days of outcomes
)

// keeper reports this process's decisions to the ledger, and keeps the ledger's verdicts on the
// policies in force. The ledger is in this process, or that of another daemon: both are told alike.
type keeper struct {
	server decider
	log    *zap.Logger
	failed *failedReloads
	keys   func() *receipt.Keys
	now    func() time.Time
	tell   func(context.Context, *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error)
	report func(context.Context, *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error)
	place  string // where the ledger is, for the log
	file   string // keeps the memory; "" for none
	issued keptIssued
	watch  func(context.Context) // takes matured cohorts; nil for the ledger of another process
	close  func() error
	// replicas returns the daemons that tell the ledger of this process; nil for another's.
	replicas func() []ledger.Replica
	// disk says how the store of this process's ledger is; nil for another's.
	disk func() store.Status
	// promises returns the promises with their figures, as last computed or told.
	promises func() []*ckdv1.PromiseFigures
	// figures asks another process's ledger for the figures of a model that its answers to tell lack; nil
	// for the own ledger.
	figures func(ctx context.Context, model string) ([]*ckdv1.PromiseFigures, error)
	told    atomic.Pointer[[]*ckdv1.PromiseFigures] // that figures returned last
	looked  atomic.Pointer[time.Time]               // when somebody last looked at figures; nil for never
	asked   time.Time                               // when figures was last called
	short   bool                                    // figures has failed, and the failure was logged

	process   string
	began     atomic.Bool               // run was called
	answered  atomic.Pointer[time.Time] // when the ledger last answered; nil for never
	incidents *incidents
	alarms    atomic.Pointer[[]ledger.Alarm] // the last of each figure, for metrics

	mu       sync.Mutex // one round at a time
	progress progress
	has      *ckdv1.LedgerIdentity // the ledger that was told all at the end of the last round; nil for none
	memory   ledgerMemory
	room     int              // bytes of a part
	shown    []*ckdv1.Promise // in force on the server
	cause    string           // why the ledger did not answer, without what differs each time; "" while it does
	why      string           // the same, as logged
	pause    time.Duration    // until the next round
	warned   bool             // of the missing file

	hashes  map[string]string     // of the policies in force, by model, as of the last round; nil before the first
	changes []*ckdv1.PolicyChange // since an answer has come
}

// decider lists what a keeper uses of the server.
type decider interface {
	Policies() []*policy.Policy
	Issued(after uint64, keys int) []server.Issued
	Sealed() map[receipt.SealerID]uint64
	SetLedgerState(server.LedgerState)
}

// newKeeper opens the ledger, or connects to it. It returns nil if the settings name none. Of a ledger in this
// process, the service is registered with the server.
func newKeeper(
	c *config.Config, s *server.Server, keys func() *receipt.Keys, inputs *triage.Inputs, m *metrics.Metrics, log *zap.Logger, failed *failedReloads,
) (_ *keeper, err error) {
	k := makeKeeper(s, keys, log, failed)
	k.file, k.issued.file = c.LedgerState, issuedFile(c)
	switch {
	case c.Ledger != "":
		err = k.open(c, s, keys, inputs, m)
	case c.LedgerAt != "":
		err = k.connect(c)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := k.readState(); err != nil {
		return nil, errors.Join(err, k.close())
	}
	if err := k.issued.read(); err != nil {
		k.log.Warn("a ledger that lacks what was issued before this start is not told again", zap.Error(err))
	}
	if k.memory.ledger != nil {
		k.log.Info("what the ledger said last stands until it answers", zap.Timep("said", k.answered.Load()), zap.String("file", k.file))
	}
	k.inForce()
	started := clock.Now()
	m.ReadStateTime(func() time.Time {
		if at := k.answered.Load(); at != nil {
			return *at
		}
		return started
	})
	m.ReadLedger(k.incidents.now, func() []ledger.Alarm { return *k.alarms.Load() })
	return k, nil
}

func makeKeeper(s decider, keys func() *receipt.Keys, log *zap.Logger, failed *failedReloads) *keeper {
	var name [processName]byte
	_, _ = rand.Read(name[:]) // never fails: crypto/rand
	return &keeper{
		server: s, log: log, failed: failed, keys: keys, now: clock.Now, process: hex.EncodeToString(name[:]),
		incidents: &incidents{log: log, failed: failed}, progress: newProgress(nil), memory: newLedgerMemory(), room: partBytes, pause: tellEvery,
	}
}

// open opens a ledger of this process.
func (k *keeper) open(c *config.Config, s *server.Server, keys func() *receipt.Keys, inputs *triage.Inputs, m *metrics.Metrics) error {
	l, err := ledger.Open(c.Ledger, ledger.Options{Keys: keys, Now: clock.Now})
	if err != nil {
		return err
	}
	service := outcomes.Register(s, outcomes.Options{Ledger: l, Keys: keys, Log: k.log, Answered: m.Outcome, Reported: inputs.Reported})
	k.report = service.ReportOutcomes
	k.tell, k.place, k.close, k.replicas, k.disk = service.ReportIssued, c.Ledger, l.Close, l.Replicas, l.Status
	m.ReadStore(l.Status)
	k.watch = func(ctx context.Context) {
		l.Run(ctx, func(err error) { k.log.Error("the ledger failed", zap.Error(err)) })
	}
	recent := func(message func(*promise.Promise) *ckdv1.PromiseFigures) (all []*ckdv1.PromiseFigures) {
		states, err := l.Recent()
		if err != nil {
			k.log.Error("the ledger's state cannot be read", zap.Error(err))
		}
		for _, p := range states {
			all = append(all, message(p))
		}
		return all
	}
	k.promises = func() []*ckdv1.PromiseFigures { return recent(outcomes.Figures) }
	m.ReadPromises(func() []*ckdv1.PromiseFigures { return recent(outcomes.DueFigures) })
	return nil
}

// connect makes a client of another daemon's ledger.
func (k *keeper) connect(c *config.Config) error {
	var options []client.Option
	switch {
	case c.LedgerCA != "":
		options = append(options, client.WithTLS(client.TLSFiles{CA: c.LedgerCA, Cert: c.TLSCert, Key: c.TLSKey}))
	case c.InsecurePlaintext:
		options = append(options, client.WithInsecure())
	}
	if c.LedgerToken != "" {
		options = append(options, client.WithTokenFile(c.LedgerToken))
	}
	conn, err := client.Dial(c.LedgerAt, options...)
	if err != nil {
		return err
	}
	service := conn.Outcomes()
	k.tell = func(ctx context.Context, r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		return service.ReportIssued(ctx, r)
	}
	k.report = func(ctx context.Context, r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) {
		return service.ReportOutcomes(ctx, r)
	}
	k.figures = func(ctx context.Context, model string) ([]*ckdv1.PromiseFigures, error) {
		answer, err := service.ListPromises(ctx, &ckdv1.ListPromisesRequest{Model: model})
		return answer.GetPromises(), err
	}
	k.promises = func() []*ckdv1.PromiseFigures {
		now := k.now()
		k.looked.Store(&now)
		if all := k.told.Load(); all != nil {
			return *all
		}
		return nil
	}
	k.place, k.close = c.LedgerAt, conn.Close
	return nil
}

// enter gives one outcome to the ledger.
func (k *keeper) enter(ctx context.Context, o *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) {
	answer, err := k.report(ctx, &ckdv1.ReportOutcomesRequest{Outcomes: []*ckdv1.Outcome{o}})
	if err != nil {
		return nil, err
	}
	if n := len(answer.GetAnswers()); n != 1 {
		return nil, fmt.Errorf("the ledger at %s answered %d outcomes of 1", k.place, n)
	}
	return answer.GetAnswers()[0], nil
}

// run tells the ledger every few seconds, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	k.began.Store(true)
	var watching sync.WaitGroup
	defer watching.Wait()
	if k.watch != nil {
		watching.Go(func() { k.watch(ctx) })
	}
	for {
		k.round(ctx, tellTime)
		k.mu.Lock()
		pause := k.pause
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(clock.Every(pause)):
		}
	}
}

// begin tells the ledger for the first time, before inputs come: policies with on_breach: defer wait for
// its answer. It does not wait for a ledger that is away.
func (k *keeper) begin() {
	if k == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.round(context.Background(), lastTell)
	}()
	select {
	case <-ended:
	case <-time.After(lastTell):
	}
}

// end reports the decisions since the last round, and closes the ledger.
func (k *keeper) end() {
	if k == nil {
		return
	}
	if k.began.Load() {
		k.round(context.Background(), lastTell)
		k.mu.Lock()
		k.keepIssued()
		k.mu.Unlock()
	}
	if err := k.close(); err != nil {
		k.log.Error("the ledger was not closed well", zap.Error(err))
	}
}

// round tells the ledger what it lacks, part by part, and puts its answers in force. Acknowledged parts are
// not told again, also if the round ends early. While the ledger is away, its last answer stands.
func (k *keeper) round(ctx context.Context, limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began, heard := time.Now(), false
	r := k.newRound()
	for !r.told || len(r.ask) > 0 {
		p := k.next(r)
		sent := k.now()
		answer, err := k.tell(ctx, p.ReportIssuedRequest)
		if err != nil {
			if k.leaves(p, err) || k.shrink(p, err) {
				continue
			}
			k.missed(err)
			break
		}
		if p.earlier == nil {
			k.hear(p, answer, sent)
		}
		if now := answer.GetLedger(); k.progress.ledger != nil && !sameCopy(k.progress.ledger, now) {
			k.progress, r = newProgress(now), k.newRound() // it lacks what the other copy was told
		} else {
			k.progress.ledger = now
			k.acknowledged(r, p, answer)
		}
		heard = true
		if time.Since(began) > limit/2 { // the rest comes in the next round
			break
		}
	}
	k.watchDisk()
	k.has = nil
	if r.told && k.progress.left.IsZero() {
		k.has = k.progress.ledger
	}
	if !k.now().Before(k.issued.next) {
		k.keepIssued()
	}
	if !heard {
		return
	}
	k.incidents.set(incidentPolicy, k.refusedPolicies())
	k.inForce()
	k.writeState()
	k.watchReplicas()
	k.readFigures(ctx)
}

// missed notes that the ledger did not answer. The log names each cause once while it lasts.
func (k *keeper) missed(err error) {
	if cause := causeOf(err); cause != k.cause {
		k.log.Warn("the ledger does not answer; what it said last stands", zap.String("ledger", k.place), zap.Error(err))
		k.cause, k.why = cause, err.Error()
	}
	k.pause = tellEvery
	clear(k.progress.refused) // it may be another one when it answers again
	since, answered := "since this daemon started", k.answered.Load()
	if answered != nil {
		since = "since " + answered.UTC().Format(time.RFC3339)
	}
	if k.memory.ledger == nil {
		if models := k.deferring(); len(models) > 0 {
			k.incidents.set(incidentUnheard, fmt.Sprintf("ledger: %s has not answered since this daemon started: until it does, everything called safe is deferred for %s",
				k.place, strings.Join(models, ", ")))
		}
	}
	if answered == nil || clock.Since(*answered) >= awayAfter {
		k.incidents.set(incidentAway, fmt.Sprintf("ledger: %s has not answered %s; what it said last stands: %s", k.place, since, k.why))
	}
}

// causeOf returns an error without what differs each time, such as the port of a connection.
func causeOf(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '#'
		}
		return r
	}, err.Error())
}

// deferring returns the models whose policies depend on the ledger.
func (k *keeper) deferring() (models []string) {
	for _, p := range k.server.Policies() {
		if server.DefersOnBreach(p) {
			models = append(models, p.Name)
		}
	}
	return models
}

// hear takes in the ledger's answer to a part that was sent at a time.
func (k *keeper) hear(p *part, answer *ckdv1.ReportIssuedResponse, sent time.Time) {
	now := k.now()
	k.answered.Store(&now)
	if k.cause != "" {
		k.log.Info("the ledger answers again", zap.String("ledger", k.place))
	}
	k.cause, k.changes = "", nil
	k.incidents.set(incidentAway, "")
	k.incidents.set(incidentUnheard, "")
	k.pause = min(max(answer.GetNext().AsDuration(), tellEvery), tellLatest)
	before, id := k.memory.ledger, answer.GetLedger()
	k.memory.hear(p.PolicyHashes, answer)
	other := ""
	switch {
	case before == nil || sameCopy(before, id):
	case !sameLedger(before, id):
		forget := "restart this daemon"
		if k.file != "" {
			forget = "delete " + k.file + " and " + forget
		}
		other = fmt.Sprintf("ledger: %s is another ledger (%s) than the one that this daemon was told by before (%s): was its folder emptied, or is its path or address "+
			"wrong? What the other one said stands, alarms too. To take this one for good, %s", k.place, id.GetId(), before.GetId(), forget)
	default:
		k.log.Warn("the ledger was restored from an older copy: everything is told again, and alarms that the copy lacks stay", zap.String("ledger", k.place),
			zap.Uint64("generation", id.GetGeneration()))
	}
	k.incidents.set(incidentOther, other)
	k.hearClock(answer, sent, now)
	key := ""
	if unknown := answer.GetUnknownReceiptKeys(); len(unknown) > 0 {
		key = fmt.Sprintf("ledger: %s lacks the receipt keys %s of this daemon: it refuses outcomes of their receipts. Add them to its receipt-keys",
			k.place, strings.Join(unknown, ", "))
	}
	k.incidents.set(incidentKey, key)
}

// hearClock compares the clocks, less what the message took.
func (k *keeper) hearClock(answer *ckdv1.ReportIssuedResponse, sent, now time.Time) {
	text := ""
	if answer.GetTime() != nil {
		there := answer.GetTime().AsTime()
		switch {
		case sent.Sub(there) > clocksApart:
			text = "ahead of"
		case there.Sub(now) > clocksApart:
			text = "behind"
		}
		if text != "" {
			text = fmt.Sprintf("ledger: the clock of this daemon is more than a minute %s that of %s: decisions count in the wrong hour, and outcomes can be refused", text, k.place)
		}
	}
	k.incidents.set(incidentClock, text)
}

// watchDisk says when the ledger of this process cannot be written, or soon cannot.
func (k *keeper) watchDisk() {
	if k.disk == nil {
		return
	}
	text := ""
	switch s := k.disk(); {
	case s.LastError != "":
		text = fmt.Sprintf("ledger: %s cannot be written: outcomes are refused and evidence stands still until it can: %s", k.place, s.LastError)
	case s.FreeBytes < leastRoom:
		text = fmt.Sprintf("ledger: the file system of %s has less than %d MiB left: make room before outcomes are refused", k.place, leastRoom>>20)
	}
	k.incidents.set(incidentDisk, text)
}

// watchReplicas names the daemons that have an incident with the ledger of this process.
func (k *keeper) watchReplicas() {
	if k.replicas == nil {
		return
	}
	const most = 10 // lines
	var faults []string
	known := k.keys().IDs()
	for _, r := range k.replicas() {
		name := fmt.Sprintf("replica %.8s", r.Process)
		if r.Identity != "" {
			name += " (" + r.Identity + ")"
		}
		if r.ClockAhead.Abs() > clocksApart {
			faults = append(faults, fmt.Sprintf("ledger: the clock of %s differs by more than a minute", name))
		}
		if lacking := slices.DeleteFunc(slices.Clone(r.Keys), func(id string) bool { return slices.Contains(known, id) }); len(lacking) > 0 {
			faults = append(faults, fmt.Sprintf("ledger: receipt-keys lacks the keys %s of %s", strings.Join(lacking, ", "), name))
		}
		if r.Remembers.ID != "" && k.memory.ledger != nil && r.Remembers.ID != k.memory.ledger.GetId() {
			faults = append(faults, fmt.Sprintf("ledger: %s was told by another ledger before (%s)", name, r.Remembers.ID))
		}
	}
	if n := len(faults) - most; n > 0 {
		faults = append(faults[:most], fmt.Sprintf("ledger: and %d more", n))
	}
	k.incidents.set(incidentReplicas, strings.Join(faults, "\n"))
}

// readFigures asks for all figures of the policies in force, now and then while somebody looks at them.
// While the ledger does not tell them, those stand that it told last, under its present verdicts. Without
// the right to read them, the short figures of its answers have to do. The caller holds mu.
func (k *keeper) readFigures(ctx context.Context) {
	looked := k.looked.Load()
	if k.figures == nil || looked == nil || k.now().Sub(*looked) > 3*figuresEvery || time.Since(k.asked) < clock.Every(figuresEvery) {
		return
	}
	k.asked = time.Now()
	var all []*ckdv1.PromiseFigures
	var failed error
	for _, p := range k.server.Policies() {
		figures, err := k.figures(ctx, p.Name)
		if err != nil {
			failed = err
			break
		}
		all = append(all, figures...)
	}
	if failed != nil {
		if !k.short {
			k.log.Warn("the ledger does not tell all figures, of which the triage page shows those told last, or few: does the identity of ledger-token have the right outcomes?",
				zap.String("ledger", k.place), zap.Error(failed))
		}
		var last []*ckdv1.PromiseFigures
		if told := k.told.Load(); told != nil && status.Code(failed) != codes.PermissionDenied {
			last = *told
		}
		all = nil
		for _, p := range k.shown {
			all = append(all, figuresUnder(p, last))
		}
	}
	k.short = failed != nil
	k.told.Store(&all)
}

// figuresUnder returns the figures that were told last of a promise, under its present verdict; short ones
// where none were.
func figuresUnder(p *ckdv1.Promise, last []*ckdv1.PromiseFigures) *ckdv1.PromiseFigures {
	i := slices.IndexFunc(last, func(f *ckdv1.PromiseFigures) bool {
		return f.GetPromise().GetPolicy().GetHash() == p.GetPolicy().GetHash() && f.GetPromise().GetModelVersion() == p.GetModelVersion()
	})
	if i < 0 {
		return outcomes.ShortFigures(p)
	}
	f := proto.CloneOf(last[i])
	f.Promise = p
	return f
}

// inForce puts in force what is remembered, logs new verdicts, and has /healthz name alarms and violated
// promises.
func (k *keeper) inForce() {
	var hashes []string
	for _, p := range k.server.Policies() {
		hashes = append(hashes, p.Hash)
	}
	if len(hashes) > 0 { // else the policies are still to come
		k.memory.keepOnly(hashes)
	}
	before := map[string]*ckdv1.Promise{}
	for _, p := range k.shown {
		before[nameOf(p)] = p
	}
	k.shown = k.memory.states()
	for _, p := range k.shown {
		was := before[nameOf(p)]
		if was.GetVerdict() != p.GetVerdict() || was.GetAlarm() != p.GetAlarm() {
			logPromise(k.log, p)
		}
	}
	if models := k.deferring(); len(models) > 0 && k.file == "" && !k.warned {
		k.warned = true
		k.log.Warn("policies defer while an alarm is up, and without ledger-state a restart forgets the alarms that this daemon knows: a ledger that was emptied "+
			"or restored meanwhile would end them", zap.Strings("models", models))
	}
	alarms := []ledger.Alarm{}
	for _, a := range k.memory.allAlarms() {
		alarms = append(alarms, outcomes.AlarmOf(a))
	}
	for _, p := range k.server.Policies() {
		never := &ckdv1.Alarm{Model: p.Name, Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE}
		if k.memory.alarms[keyOf(never)] == nil {
			alarms = append(alarms, ledger.Alarm{Model: p.Name, Figure: outcomes.AlarmOf(never).Figure})
		}
	}
	k.alarms.Store(&alarms)
	k.failed.set("promises", k.memory.violations())
	k.server.SetLedgerState(server.LedgerState{Heard: k.memory.ledger != nil, Promises: k.shown, Alarms: k.memory.up()})
}

// nameOf names a promise.
func nameOf(p *ckdv1.Promise) string { return p.GetPolicy().GetHash() + " " + p.GetModelVersion() }

// logPromise logs a verdict that is new: a warning if the promise is violated.
func logPromise(log *zap.Logger, p *ckdv1.Promise) {
	level := zap.InfoLevel
	if p.GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED {
		level = zap.WarnLevel
	}
	log.Log(level, "what outcomes say of a policy has changed", zap.String("model", p.GetPolicy().GetModel()),
		zap.String("policy_hash", p.GetPolicy().GetHash()), zap.String("model_version", p.GetModelVersion()), zap.String("statement", p.GetStatement()))
}

// admit returns what puts policies in force, but for those that could never be judged: a daemon without a
// ledger cannot know that their promise is violated, and would retain as if it held.
func (k *keeper) admit(use func(*policy.Set) error) func(*policy.Set) error {
	if k != nil {
		return use
	}
	return func(set *policy.Set) error {
		for _, p := range set.All() {
			if server.DefersOnBreach(p) {
				return fmt.Errorf("model %q: audit.on_breach: defer, but this daemon has no ledger that could tell it of a breach, expected ledger or ledger-at beside it, or on_breach: alarm", p.Name)
			}
		}
		return use(set)
	}
}
