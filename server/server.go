package server

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress; the limit on messages is of what they unpack to
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Options are the parts that a Server is built from.
type Options struct {
	Limits   Limits
	Logger   *zap.Logger
	Metrics  *metrics.Metrics
	Registry prometheus.Registerer // of the RPC metrics
	Channelz bool                  // serve gRPC's channelz
	Tracing  stats.Handler         // makes spans of calls; nil for none
	TLS      *certs.Source         // of connections over TCP; nil: they are plaintext
	Access   *access.Store         // who may what; nil: whoever connects may everything
	Deferred Deferred              // is told of each deferred input; nil: nobody is
	Refusals *Refusals             // what is refused outside streams; nil: Logger has it by itself
}

// Deferred is told of an input that was deferred, of the id that its client gave it,
// and of the policy that decided. The id and the outcome are good only during the
// call. It is called from many goroutines.
type Deferred func(p *policy.Policy, id []byte, o *engine.Outcome)

// Server answers ckd.v1.UncertaintyService, health and reflection.
type Server struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	limits   Limits
	log      *zap.Logger
	metrics  *metrics.Metrics
	access   *access.Store
	deferred Deferred
	refusals *Refusals
	grpc     *grpc.Server
	rpc      *rpcMetrics

	sorts  func() map[string]sort // see sorts
	health *health.Server

	catalog   atomic.Pointer[catalog]
	replacing sync.Mutex    // of the catalog
	replaced  chan struct{} // closed when the catalog is replaced; under replacing
	settlings []*settling   // see keepSettlings; under replacing

	underWay
	hints     atomic.Uint32 // given out to streams, for the shards of metrics
	openBytes atomic.Int64  // held by open inputs, requests and replies that are not sent
	drained   chan struct{} // closed when the daemon begins to stop
	killed    chan struct{} // closed when it will not wait any longer
}

// headerBytes of a call: gRPC itself would take 16 MiB, of whomever.
const headerBytes = 64 << 10

// readBufferBytes of a connection: large messages come in fewer reads.
const readBufferBytes = 128 << 10

// catalog is the models that are served, by name; it is replaced as a whole.
type catalog map[string]*model

// model is a policy in force, with all that answering under it needs.
type model struct {
	lean, full  workshop // for decisions and vectors; for all that DETAIL_FULL has
	metrics     *metrics.Model
	ref         *ckdv1.PolicyRef
	encodedRef  []byte // as replies carry it
	calibration *calibration
	settling    *settling    // nil where the policy has no rule in force
	critical    []bool       // by class
	users       atomic.Int64 // streams, inputs and requests that count into its metrics
}

// Policy is the policy.
func (m *model) Policy() *policy.Policy { return m.lean.Policy() }

// New builds a Server without models, which says NOT_SERVING: see SetPolicies.
func New(o Options) (*Server, error) {
	s := &Server{
		limits: o.Limits, log: o.Logger, metrics: o.Metrics, access: o.Access, deferred: o.Deferred, health: health.NewServer(),
		replaced: make(chan struct{}), drained: make(chan struct{}), killed: make(chan struct{}),
	}
	if s.refusals = o.Refusals; s.refusals == nil {
		s.refusals = NewRefusals(o.Logger)
	}
	s.catalog.Store(&catalog{})
	s.sorts = sync.OnceValue(func() map[string]sort { return sorts(s.grpc.GetServiceInfo()) })
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)

	s.rpc = &rpcMetrics{ServerMetrics: grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		grpcprom.WithHistogramBuckets([]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10}),
	))}
	if err := o.Registry.Register(s.rpc); err != nil {
		return nil, fmt.Errorf("rpc metrics: %w", err)
	}
	unary, stream := chains(s.interceptors())
	options := []grpc.ServerOption{
		// A peer that connects and says nothing must not hold up the end.
		grpc.ConnectionTimeout(5 * time.Second),
		// A peer that is gone without a word is found out within a minute or two;
		// clients may ask for the same of us without being sent away.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second,
			// A connection ends as its streams do, or clients that balance would open
			// the next on the same one and never look for other replicas.
			MaxConnectionAge: o.Limits.StreamAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(wire.Codec{Unsent: &s.openBytes}),
		grpc.Creds(connections{certs.Credentials(o.TLS), s}),
		grpc.InTapHandle(s.admit),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.MaxRecvMsgSize(o.Limits.MessageBytes),
		grpc.MaxSendMsgSize(maxSendBytes),
		grpc.MaxHeaderListSize(headerBytes),
		// All that may be under way at all: what comes over HTTP shares a connection.
		grpc.MaxConcurrentStreams(uint32(o.Limits.Streams + o.Limits.Watches + o.Limits.Calls + probesAtOnce + othersAtOnce)),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
	}
	if o.Tracing != nil {
		options = append(options, grpc.StatsHandler(o.Tracing))
	}
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(&service, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	if o.Channelz {
		channelz.RegisterChannelzServiceToServer(s.grpc)
	}
	s.rpc.InitializeMetrics(own{s.grpc})
	s.metrics.ReadSaturation(s.saturation)
	s.metrics.ReadSettling(s.Settling)
	return s, nil
}

// GRPC is the server to serve and stop.
func (s *Server) GRPC() *grpc.Server { return s.grpc }

// SetPolicies puts a set of policies in force, all at once: inputs that are
// opened from now on are decided by it, those open already keep theirs. On an
// error nothing has changed.
func (s *Server) SetPolicies(set *policy.Set) error {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	before, engines := *s.catalog.Load(), map[string]*engine.Model{}
	for _, p := range set.All() {
		m, err := engine.NewLean(p)
		if err != nil {
			return err
		}
		if err := s.limits.admit(m); err != nil {
			return fmt.Errorf("model %q: %w", p.Name, err)
		}
		engines[p.Name] = m
	}
	next := catalog{}
	for name, m := range engines {
		p := m.Policy()
		if old := before[name]; old != nil && old.ref.GetHash() == p.Hash && old.ref.GetVersion() == p.Version && old.Policy().Tensor == p.Tensor &&
			reflect.DeepEqual(old.Policy().Calibration, p.Calibration) && reflect.DeepEqual(old.Policy().Settle, p.Settle) {
			next[name] = old // nothing of it has changed
			continue
		}
		full, err := engine.New(p)
		if err != nil {
			return err
		}
		settling, err := s.settlingOf(p)
		if err != nil {
			return fmt.Errorf("model %q: %w", name, err)
		}
		critical := make([]bool, len(p.Classes))
		for _, k := range p.Critical {
			critical[k] = true
		}
		ref := &ckdv1.PolicyRef{Model: name, Version: p.Version, Hash: p.Hash}
		next[name] = &model{
			lean:        workshop{Model: m},
			full:        workshop{Model: full},
			metrics:     s.metrics.Model(p, m.Plan()),
			ref:         ref,
			encodedRef:  wire.EncodePolicy(ref),
			calibration: newCalibration(p),
			settling:    settling,
			critical:    critical,
		}
	}
	for name, m := range next {
		if p := m.Policy(); p.Settle != nil && m.settling == nil && before[name] != m {
			s.log.Warn("the policy was changed since its rule to settle inputs early was learned: the rule is not in force, and all passes decide",
				zap.String("model", name), zap.String("learned_for", p.Settle.PolicyHash), zap.String("policy_hash", p.Hash))
		}
	}
	s.catalog.Store(&next)
	s.keepSettlings(next)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	for service := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(service, healthv1.HealthCheckResponse_SERVING)
	}
	for name := range next {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	for name, old := range before {
		if next[name] == nil {
			s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
			if old.users.Load() == 0 {
				s.metrics.Remove(name)
			}
		}
	}
	close(s.replaced)
	s.replaced = make(chan struct{})
	return nil
}

// changed is closed when the policies are replaced the next time.
func (s *Server) changed() <-chan struct{} {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	return s.replaced
}

// successor is the model under which inputs of a stream open now that was bound
// to another. If its policy is gone, or its rows have another shape, the stream
// cannot go on: the fault says so.
func (s *Server) successor(bound *model) (*model, *fault) {
	was := bound.Policy()
	next := (*s.catalog.Load())[was.Name]
	if next == bound {
		return next, nil
	}
	if next != nil {
		is := next.Policy()
		if slices.Equal(is.Classes, was.Classes) && is.Kind == was.Kind && is.ExpectedPasses == was.ExpectedPasses &&
			is.FewestPasses == was.FewestPasses {
			return next, nil
		}
	}
	return nil, &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, field: "model", value: was.Name, expected: "a new stream",
		message: fmt.Sprintf("the policy of model %q was removed, or changed its classes, kind or passes", was.Name),
	}
}

// retain keeps a model's series while something counts into them.
func (s *Server) retain(m *model) { m.users.Add(1) }

// release ends that. The series of a model that has left the policies go with
// the last that used them.
func (s *Server) release(m *model) {
	if m.users.Add(-1) > 0 || (*s.catalog.Load())[m.ref.GetModel()] != nil {
		return
	}
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if m.users.Load() == 0 && (*s.catalog.Load())[m.ref.GetModel()] == nil {
		s.metrics.Remove(m.ref.GetModel())
	}
}

// Drain says NOT_SERVING and lets streams open no more inputs; each ends when
// the last it has is answered.
func (s *Server) Drain() {
	s.health.Shutdown()
	close(s.drained)
}

// Idle reports whether no call of ours is under way: others, such as watches of
// the health, need not be waited for.
func (s *Server) Idle() bool { return s.streams.Load() == 0 && s.calls.Load() == 0 }

// Kill ends the streams that are left.
func (s *Server) Kill() { close(s.killed) }

// Stopping is the status of calls that come when the daemon is stopping; nil before.
func (s *Server) Stopping() error {
	select {
	case <-s.drained:
		return statusOf(draining("the daemon is stopping"), location{}).Err()
	default:
		return nil
	}
}

// Serving reports whether there are policies and the daemon wants traffic.
func (s *Server) Serving() bool {
	select {
	case <-s.drained:
		return false
	default:
		return len(*s.catalog.Load()) > 0
	}
}

// Models are the policies in force, by name.
func (s *Server) Models() []*ckdv1.PolicyRef {
	models := *s.catalog.Load()
	var refs []*ckdv1.PolicyRef
	for _, name := range slices.Sorted(maps.Keys(models)) {
		refs = append(refs, models[name].ref)
	}
	return refs
}

// Policies are those in force, in the order of their models' names.
func (s *Server) Policies() []*policy.Policy {
	models := *s.catalog.Load()
	var all []*policy.Policy
	for _, name := range slices.Sorted(maps.Keys(models)) {
		all = append(all, models[name].Policy())
	}
	return all
}

// model finds a model by the name that a client sent, who must be allowed to use
// it: that is said first, so that who is not does not learn whether there is one.
func (s *Server) model(ctx context.Context, name string) (*model, error) {
	if err := access.Allow(ctx, name); err != nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, field: "model", value: name, expected: "a name from ListModels",
			message: status.Convert(err).Message(),
		}
	}
	if m := (*s.catalog.Load())[name]; m != nil {
		noteModel(ctx, m)
		return m, nil
	}
	return nil, &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, field: "model",
		message: fmt.Sprintf("no policy names the model %q%s", clip(name), s.known(ctx, name)),
		value:   name, expected: "a name from ListModels",
	}
}

// known returns the end of the message about an unknown model: names that the
// caller may use, of which it learns from ListModels too. They have few bytes,
// since the message travels in a header.
func (s *Server) known(ctx context.Context, name string) string {
	const mostBytes = 200
	who := access.FromContext(ctx)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(*s.catalog.Load())), func(name string) bool { return !who.MayUse(name) })
	if len(names) == 0 {
		return ""
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

// ListModels implements the RPC.
func (s *Server) ListModels(ctx context.Context, _ *ckdv1.ListModelsRequest) (*ckdv1.ListModelsResponse, error) {
	who := access.FromContext(ctx)
	models := *s.catalog.Load()
	response := &ckdv1.ListModelsResponse{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if who.MayUse(name) {
			response.Models = append(response.Models, modelMessage(models[name]))
		}
	}
	return response, nil
}

// GetModel implements the RPC.
func (s *Server) GetModel(ctx context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	m, err := s.model(ctx, r.GetModel())
	if err != nil {
		return nil, statusOf(err, location{}).Err()
	}
	return &ckdv1.GetModelResponse{Model: modelMessage(m)}, nil
}
