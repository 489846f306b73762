package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// catalog holds the models in force. Readers see one whole set of models or the next,
// never a mixture.
type catalog struct {
	limits  Limits
	log     *zap.Logger
	metrics *metrics.Metrics
	current atomic.Pointer[models]
	ledger  atomic.Pointer[ledgerState]
	message atomic.Int64 // bytes of the largest message

	replacing sync.Mutex    // guards the fields below, and is held while current changes
	replaced  chan struct{} // closed when current is replaced
	stoppers  engine.EarlyStoppers
	standings map[string]*standing // by the name of a model with series
}

// models maps names to the models of one set of policies. It is never changed.
type models map[string]*model

// model is a policy in force, with everything that answering under it needs.
type model struct {
	lean, full scratchPool // for decisions and vectors; for everything in DETAIL_FULL
	metrics    *metrics.Model
	ref        *ckdv1.PolicyRef
	encodedRef []byte // encoded as replies carry it
	mismatches mismatches
	reviewing
	ledger   *atomic.Pointer[ledgerState] // the catalog's
	standing *standing
	run      *passcheck.Run // of the inputs of all callers
}

// standing is what policies of one name share, as they share their series.
type standing struct {
	users  atomic.Int64 // streams, inputs and requests that count into the series
	passes degeneracy
}

// Policy returns the policy that the model decides by.
func (m *model) Policy() *policy.Policy { return m.lean.Policy() }

// newCatalog returns a catalog without models.
func newCatalog(o Options) *catalog {
	c := &catalog{limits: o.Limits, log: o.Logger, metrics: o.Metrics, replaced: make(chan struct{}), standings: map[string]*standing{}}
	c.current.Store(&models{})
	c.ledger.Store(&ledgerState{heard: true}) // a server without a ledger waits for none
	c.message.Store(int64(o.Limits.messageBytesFor(nil)))
	return c
}

// models returns the models in force.
func (c *catalog) models() models { return *c.current.Load() }

// sorted returns the models in the order of their names.
func (ms models) sorted() []*model {
	all := make([]*model, 0, len(ms))
	for _, name := range slices.Sorted(maps.Keys(ms)) {
		all = append(all, ms[name])
	}
	return all
}

// replace puts a set of policies in force and calls publish with the models before and
// after. An error changes nothing.
func (c *catalog) replace(set *policy.Set, publish func(before, after models)) error {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	before := c.models()
	next, err := c.build(set, before)
	if err != nil {
		return err
	}
	for name, m := range next {
		if p := m.Policy(); p.EarlyStopping != nil && m.lean.Stopper() == nil && before[name] != m {
			c.log.Warn("the policy was changed since its early-stopping rule was learned: the rule is not in force, and all passes decide",
				zap.String("model", name), zap.String("learned_for", p.EarlyStopping.PolicyHash), zap.String("policy_hash", p.Hash))
		}
	}
	c.fitMessages(next)
	c.current.Store(&next)
	c.stoppers.Keep(next.stoppers())
	publish(before, next)
	for name, old := range before {
		if next[name] == nil && old.standing.users.Load() == 0 {
			c.remove(name)
		}
	}
	close(c.replaced)
	c.replaced = make(chan struct{})
	return nil
}

// fitMessages raises the largest message to what the models need. It never lowers it, since open
// streams have been told what they may send.
func (c *catalog) fitMessages(all models) {
	if bytes := int64(c.limits.messageBytesFor(all)); bytes > c.message.Load() {
		c.message.Store(bytes)
		c.log.Info("the largest message follows from the policies", zap.Int64("bytes", bytes))
	}
}

// messageBytes returns the bytes of the largest message.
func (c *catalog) messageBytes() int { return int(c.message.Load()) }

// build returns the models of a set of policies. A model whose policy is the same as
// before is kept, with its scratch and its users. All policies are checked against the
// limits before anything large is made.
func (c *catalog) build(set *policy.Set, before models) (models, error) {
	lean := map[string]*engine.Model{}
	for _, p := range set.All() {
		stopper, err := c.stoppers.For(p, fullpass.NewSampler(rand.Uint64()))
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", p.Name, err)
		}
		m, err := engine.Bind(p, engine.BindOptions{Lean: true, Stopper: stopper})
		if err != nil {
			return nil, err
		}
		if err := c.limits.admit(m); err != nil {
			return nil, fmt.Errorf("model %q: %w", p.Name, err)
		}
		lean[p.Name] = m
	}
	next := models{}
	for name, m := range lean {
		old := before[name]
		if old != nil && old.decidesAs(m.Policy()) {
			next[name] = old
			continue
		}
		made, err := c.newModel(m)
		if err != nil {
			return nil, err
		}
		if old != nil && len(old.Policy().Classes) == len(m.Policy().Classes) {
			made.run = old.run
		}
		next[name] = made
	}
	return next, nil
}

// stoppers returns what stops inputs of the models early.
func (ms models) stoppers() (all []*engine.EarlyStopper) {
	for _, m := range ms {
		if stopper := m.lean.Stopper(); stopper != nil {
			all = append(all, stopper)
		}
	}
	return all
}

// decidesAs reports whether nothing that the daemon reads of a policy has changed.
func (m *model) decidesAs(p *policy.Policy) bool {
	old := m.Policy()
	return old.Hash == p.Hash && old.Version == p.Version && old.Tensor == p.Tensor &&
		reflect.DeepEqual(old.Calibration, p.Calibration) && reflect.DeepEqual(old.EarlyStopping, p.EarlyStopping) &&
		reflect.DeepEqual(old.Audit, p.Audit) && reflect.DeepEqual(old.Answers, p.Answers) &&
		reflect.DeepEqual(old.Log, p.Log)
}

func (c *catalog) newModel(lean *engine.Model) (*model, error) {
	p := lean.Policy()
	full, err := engine.Bind(p, engine.BindOptions{Stopper: lean.Stopper()})
	if err != nil {
		return nil, err
	}
	ref := &ckdv1.PolicyRef{Model: p.Name, Version: p.Version, Hash: p.Hash}
	m := &model{
		lean:       scratchPool{Model: lean},
		full:       scratchPool{Model: full},
		metrics:    c.metrics.Model(p, lean.Plan()),
		ref:        ref,
		encodedRef: wire.EncodePolicy(ref),
		mismatches: mismatches{rate.Sometimes{Interval: time.Minute}, rate.Sometimes{Interval: time.Minute}},
		reviewing:  newReviewing(p),
		standing:   c.standings[p.Name],
		run:        passcheck.NewRun(len(p.Classes), nil),
		ledger:     &c.ledger,
	}
	if m.standing == nil {
		m.standing = &standing{}
		c.standings[p.Name] = m.standing
	}
	return m, nil
}

// changed returns a channel that is closed when the models are replaced the next time.
func (c *catalog) changed() <-chan struct{} {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	return c.replaced
}

// successor returns the model in force for a stream that was opened under bound. It fails
// where the model is gone, or its rows now have another shape: such a stream must end.
func (c *catalog) successor(bound *model) (*model, *fault) {
	old := bound.Policy()
	next := c.models()[old.Name]
	if next == bound {
		return next, nil
	}
	if next != nil {
		p := next.Policy()
		if slices.Equal(p.Classes, old.Classes) && p.Kind == old.Kind && p.ExpectedPasses == old.ExpectedPasses &&
			p.FewestPasses == old.FewestPasses {
			return next, nil
		}
	}
	return nil, &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, field: "model", value: old.Name, expected: "a new stream",
		message: fmt.Sprintf("the policy of model %q was removed, or changed its classes, kind or passes", old.Name),
	}
}

// retain keeps the series of a model until release.
func (c *catalog) retain(m *model) { m.standing.users.Add(1) }

// release undoes retain. The last user of a model that is no longer in force removes its
// series.
func (c *catalog) release(m *model) {
	if m.standing.users.Add(-1) > 0 || c.models()[m.ref.GetModel()] != nil {
		return
	}
	c.replacing.Lock()
	defer c.replacing.Unlock()
	if m.standing.users.Load() == 0 && c.models()[m.ref.GetModel()] == nil {
		c.remove(m.ref.GetModel())
	}
}

// remove deletes the series of a model without users.
func (c *catalog) remove(name string) {
	c.metrics.Remove(name)
	delete(c.standings, name)
}

// find returns the model that a client named. It asks for permission first, so that a
// caller who may not use a model does not learn whether it exists.
func (c *catalog) find(ctx context.Context, name string) (*model, error) {
	if err := auth.Allow(ctx, name); err != nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, field: "model", value: name, expected: "a name from ListModels",
			message: status.Convert(err).Message(),
		}
	}
	all := c.models()
	if m := all[name]; m != nil {
		return m, nil
	}
	return nil, &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, field: "model",
		message: fmt.Sprintf("no policy names the model %q%s", clip(name), all.suggest(auth.FromContext(ctx), name)),
		value:   name, expected: "a name from ListModels",
	}
}

// suggest returns the end of the message about an unknown model: names that the caller may
// use. ListModels tells it all of them; the message travels in a header, so it stays short.
func (ms models) suggest(who *auth.Identity, name string) string {
	const mostBytes = 200
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(ms)), func(name string) bool { return !who.MayUse(name) })
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ", expected " + names[0]
	}
	shown, size := 1, len(names[0])
	for ; shown < len(names) && size+len(names[shown]) <= mostBytes; shown++ {
		size += len(names[shown])
	}
	list := strings.Join(names[:shown], ", ")
	if more := len(names) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return ", expected one of: " + list + strictyaml.Suggest(name, names)
}
