package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/server/outcomes"
	"github.com/ckd-project/ckd/web/triage"
)

const (
	tellEvery    = 2 * time.Second  // between reports to the ledger
	tellTime     = 10 * time.Second // timeout of a report
	figuresEvery = 10 * time.Second // between readings of all figures
	lastTell     = time.Second      // timeout of the last report
	awayAfter    = time.Minute      // without an answer, until /healthz says so
	mostAtOnce   = 5000             // counts in one message
	processName  = 16               // random bytes
)

// keeper reports this process's decisions to the ledger, and keeps the ledger's verdicts on the
// policies in force. The ledger is in this process, or that of another daemon: both are told alike.
type keeper struct {
	server decider
	log    *zap.Logger
	failed *failedReloads
	tell   func(context.Context, *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error)
	report func(context.Context, *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error)
	place  string                // where the ledger is, for the log
	file   string                // keeps the state; "" for none
	watch  func(context.Context) // takes matured cohorts; nil for the ledger of another process
	close  func() error
	// promises returns the promises with their figures, as last computed or told.
	promises func() []*ckdv1.PromiseFigures
	// figures asks another process's ledger for the figures that its answers to tell lack; nil for the
	// own ledger.
	figures func(context.Context) ([]*ckdv1.PromiseFigures, error)
	told    atomic.Pointer[[]*ckdv1.PromiseFigures] // that figures returned last
	asked   time.Time                               // when it was last called
	short   bool                                    // figures has failed, and the failure was logged

	process  string
	began    atomic.Bool               // run was called
	answered atomic.Pointer[time.Time] // when the ledger last answered; nil for never

	mu       sync.Mutex                       // one round at a time
	policies map[string]string                // texts that the ledger has, by hash
	audits   map[string]*policy.Audit         // of policies that are or were in force, by hash
	counts   map[countKey]server.IssuedCounts // as the ledger has them
	sealed   map[receipt.SealerID]uint64      // as the ledger has it
	state    []*ckdv1.Promise
	away     bool // the last round failed
	warned   bool // of the missing file
}

// decider is the server as a keeper sees it.
type decider interface {
	Policies() []*policy.Policy
	Issued() []server.Issued
	Sealed() map[receipt.SealerID]uint64
	SetPromises([]*ckdv1.Promise)
}

// countKey names a count of the process.
type countKey struct {
	server.IssuedKey
	stratum receipt.Stratum
}

// newKeeper opens the ledger, or connects to it. It returns nil if the settings name none. Of a ledger in this
// process, the service is registered with the server.
func newKeeper(
	c *config.Config, s *server.Server, keys func() *receipt.Keys, inputs *triage.Inputs, m *metrics.Metrics, log *zap.Logger, failed *failedReloads,
) (_ *keeper, err error) {
	var name [processName]byte
	_, _ = rand.Read(name[:]) // never fails: crypto/rand
	k := &keeper{server: s, log: log, failed: failed, process: hex.EncodeToString(name[:])}
	k.forgetAll()
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
	started := clock.Now()
	m.ReadStateTime(func() time.Time {
		if at := k.answered.Load(); at != nil {
			return *at
		}
		return started
	})
	return k, nil
}

// open opens a ledger of this process.
func (k *keeper) open(c *config.Config, s *server.Server, keys func() *receipt.Keys, inputs *triage.Inputs, m *metrics.Metrics) error {
	l, err := ledger.Open(c.Ledger, ledger.Options{Keys: keys, Now: clock.Now})
	if err != nil {
		return err
	}
	service := outcomes.Register(s, outcomes.Options{Ledger: l, Keys: keys, Log: k.log, Answered: m.Outcome, Reported: inputs.Reported})
	k.report = service.ReportOutcomes
	k.tell, k.place, k.close = service.ReportIssued, c.Ledger, l.Close
	k.watch = func(ctx context.Context) {
		l.Run(ctx, func(err error) { k.log.Error("the ledger failed", zap.Error(err)) })
	}
	recent := func() []*promise.Promise {
		states, err := l.Recent()
		if err != nil {
			k.log.Error("the ledger's state cannot be read", zap.Error(err))
		}
		return states
	}
	m.ReadPromises(recent)
	k.promises = func() (all []*ckdv1.PromiseFigures) {
		for _, p := range recent() {
			all = append(all, outcomes.Figures(p))
		}
		return all
	}
	return nil
}

// connect makes a client of another daemon's ledger, and reads its last answer from the file.
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
	k.figures = func(ctx context.Context) ([]*ckdv1.PromiseFigures, error) {
		answer, err := service.ListPromises(ctx, &ckdv1.ListPromisesRequest{})
		return answer.GetPromises(), err
	}
	k.promises = func() []*ckdv1.PromiseFigures {
		if all := k.told.Load(); all != nil {
			return *all
		}
		return nil
	}
	k.place, k.close, k.file = c.LedgerAt, conn.Close, c.LedgerState
	if err := k.readState(); err != nil {
		return errors.Join(err, conn.Close())
	}
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

// readState reads the state that the ledger said last.
func (k *keeper) readState() error {
	if k.file == "" {
		return nil
	}
	data, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(k.file)
	if err != nil {
		return err
	}
	var said ckdv1.ReportIssuedResponse
	if err := protojson.Unmarshal(data, &said); err != nil {
		return fmt.Errorf("%s: not the state of a ledger, expected a file that a daemon wrote, or none: %w", k.file, err)
	}
	written := info.ModTime()
	k.answered.Store(&written)
	k.state = said.GetPromises()
	k.inForce()
	k.log.Info("what the ledger said last stands until it answers", zap.Time("said", written), zap.String("file", k.file))
	return nil
}

// writeState keeps the ledger's answer, for a start while the ledger is away. It is called after each answer:
// the file is as old as the state, also after a start.
func (k *keeper) writeState() {
	if k.file == "" {
		return
	}
	data, err := protojson.Marshal(&ckdv1.ReportIssuedResponse{Promises: k.state})
	if err == nil {
		err = files.Replace(k.file, data, 0o600)
	}
	if err != nil {
		k.log.Error("what the ledger said cannot be kept: a start while it is away would not know of alarms", zap.Error(err))
	}
}

// run tells the ledger every few seconds, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	k.began.Store(true)
	var watching sync.WaitGroup
	defer watching.Wait()
	if k.watch != nil {
		watching.Go(func() { k.watch(ctx) })
	}
	tick := time.NewTicker(clock.Every(tellEvery))
	defer tick.Stop()
	for {
		k.round(ctx, tellTime)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// end reports the decisions since the last round, and closes the ledger.
func (k *keeper) end() {
	if k == nil {
		return
	}
	if k.began.Load() {
		k.round(context.Background(), lastTell)
	}
	if err := k.close(); err != nil {
		k.log.Error("the ledger was not closed well", zap.Error(err))
	}
}

// round reports new decisions to the ledger and applies its answer. While the ledger is away, its last
// answer stands.
func (k *keeper) round(ctx context.Context, limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range 3 { // a ledger that lacks a policy asks for it
		request, told := k.request()
		answer, err := k.tell(ctx, request)
		if err != nil {
			k.missed(err)
			return
		}
		told()
		k.heed(answer)
		for _, hash := range answer.GetUnknownPolicies() {
			k.forget(hash)
		}
		if len(answer.GetUnknownPolicies()) == 0 && len(request.GetCounts()) < mostAtOnce {
			k.readFigures(ctx)
			return
		}
	}
}

// request returns the counts and policies that the ledger lacks, and a function that notes them as sent.
func (k *keeper) request() (*ckdv1.ReportIssuedRequest, func()) {
	r := &ckdv1.ReportIssuedRequest{Process: k.process}
	texts := map[string]string{}
	for _, p := range k.server.Policies() {
		r.PolicyHashes = append(r.PolicyHashes, p.Hash)
		k.audits[p.Hash] = p.Audit
		k.warnOfFile(p)
		if text := string(p.Marshal()); k.policies[p.Hash] != text {
			r.Policies, texts[p.Hash] = append(r.Policies, []byte(text)), text
		}
	}
	counts, sealed := map[countKey]server.IssuedCounts{}, k.server.Sealed()
	for _, i := range k.server.Issued() {
		key := countKey{i.IssuedKey, i.Stratum}
		if k.counts[key] == i.IssuedCounts || len(r.Counts) == mostAtOnce {
			continue
		}
		counts[key] = i.IssuedCounts
		r.Counts = append(r.Counts, outcomes.IssuedMessage(&ledger.Issued{
			Policy: i.Policy, Version: i.Version, Stratum: i.Stratum, Start: time.UnixMicro(i.Start),
			Decisions: i.Decisions, Eligible: i.Eligible, Receipts: i.Receipts, Reviews: i.Reviews,
			Propensity: i.Propensity, InversePropensity: i.InversePropensity, Audit: k.audits[hex.EncodeToString(i.Policy[:])],
		}))
	}
	if len(r.Counts) == mostAtOnce {
		sealed = nil // some of them are not counted yet
	}
	for sealer, n := range sealed {
		if had, told := k.sealed[sealer]; !told || had != n {
			r.Sealed = append(r.Sealed, &ckdv1.SealedCount{Sealer: sealer[:], Count: n})
		}
	}
	return r, func() {
		maps.Copy(k.sealed, sealed)
		maps.Copy(k.policies, texts)
		maps.Copy(k.counts, counts)
	}
}

// forgetAll notes that the ledger has nothing.
func (k *keeper) forgetAll() {
	k.policies, k.audits, k.counts = map[string]string{}, map[string]*policy.Audit{}, map[countKey]server.IssuedCounts{}
	k.sealed = map[receipt.SealerID]uint64{}
}

// forget notes that the ledger lacks a policy, and the counts under it.
func (k *keeper) forget(hash string) {
	delete(k.policies, hash)
	clear(k.sealed)
	for key := range k.counts {
		if hex.EncodeToString(key.Policy[:]) == hash {
			delete(k.counts, key)
		}
	}
}

// warnOfFile warns once if a policy would need a file of the state, and there is none.
func (k *keeper) warnOfFile(p *policy.Policy) {
	if k.warned || k.file != "" || k.watch != nil || p.Audit == nil || p.Audit.OnBreach != policy.DeferOnBreach {
		return
	}
	k.warned = true
	k.log.Warn("a policy defers while its promise is violated, and without ledger-state a start while the ledger is away does not know of alarms",
		zap.String("model", p.Name))
}

// missed notes that the ledger did not answer.
func (k *keeper) missed(err error) {
	if !k.away {
		k.log.Warn("the ledger does not answer; what it said last stands", zap.String("ledger", k.place), zap.Error(err))
	}
	k.away = true
	since := "since this daemon started"
	if answered := k.answered.Load(); answered != nil {
		if clock.Since(*answered) < awayAfter {
			return
		}
		since = "since " + answered.UTC().Format(time.RFC3339)
	}
	k.failed.set("ledger", fmt.Sprintf("ledger: %s has not answered %s; what it said last stands", k.place, since))
}

// heed puts the ledger's answer in force, and logs new verdicts.
func (k *keeper) heed(answer *ckdv1.ReportIssuedResponse) {
	now := clock.Now()
	k.answered.Store(&now)
	if k.away {
		k.log.Info("the ledger answers again", zap.String("ledger", k.place))
	}
	k.away = false
	k.failed.set("ledger", "")
	before := map[string]*ckdv1.Promise{}
	for _, p := range k.state {
		before[nameOf(p)] = p
	}
	k.state = answer.GetPromises()
	for _, p := range k.state {
		was := before[nameOf(p)]
		if was.GetVerdict() != p.GetVerdict() || was.GetAlarm() != p.GetAlarm() {
			logPromise(k.log, p)
		}
	}
	k.inForce()
	k.writeState()
}

// readFigures asks for all figures of the policies in force, now and then. Without the right to read
// them, the short figures of its answers have to do. The caller holds mu.
func (k *keeper) readFigures(ctx context.Context) {
	if k.figures == nil || time.Since(k.asked) < clock.Every(figuresEvery) {
		return
	}
	k.asked = time.Now()
	all, err := k.figures(ctx)
	if err != nil {
		if !k.short {
			k.log.Warn("the ledger does not tell all figures, of which the triage page then shows few: does the identity of ledger-token have the right outcomes?",
				zap.String("ledger", k.place), zap.Error(err))
		}
		all = nil
		for _, p := range k.state {
			all = append(all, outcomes.ShortFigures(p))
		}
	}
	k.short = err != nil
	k.told.Store(&all)
}

// inForce puts the state in force, and has /healthz name violated promises.
func (k *keeper) inForce() {
	lines := ""
	for _, p := range k.state {
		if p.GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED {
			lines += fmt.Sprintf("model %s: policy %.12s, model version %q: %s\n",
				p.GetPolicy().GetModel(), p.GetPolicy().GetHash(), p.GetModelVersion(), p.GetStatement())
		}
	}
	k.failed.set("promises", lines)
	k.server.SetPromises(k.state)
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
