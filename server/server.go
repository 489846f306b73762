package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/rpcmetrics"
	"github.com/ckd-project/ckd/server/internal/unpack"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// Options holds what a Server is built from. Limits, Logger, Metrics and Registry are
// required.
type Options struct {
	Limits  Limits
	Logger  *zap.Logger
	Metrics *metrics.Metrics
	// Registry gets the metrics of the RPCs.
	Registry prometheus.Registerer
	// Tracing makes the spans of calls. May be nil.
	Tracing stats.Handler
	// Credentials secures the connections. Nil takes plaintext.
	Credentials credentials.TransportCredentials
	// Auth says who may do what. Nil lets everybody do everything.
	Auth *auth.Store
	// Referred is called when an input was deferred or is to be reviewed, with the policy that decided
	// and the id that the client gave the input. The receipt is that of a review, and empty for an
	// input that is deferred without one. The arguments are valid only during the call. Referred must
	// be safe for concurrent use. May be nil.
	Referred func(p *policy.Policy, id []byte, o *engine.Outcome, receipt []byte)
	// Decisions keeps a record of every decision. Nil keeps none.
	Decisions *decisionlog.Log
	// Refusals logs what is refused. Nil makes one that writes to Logger.
	Refusals *Refusals
	// MemoryLimit is the memory limit of the Go runtime in bytes, which GuardMemory keeps to. 0 is none.
	MemoryLimit int64
}

// Server answers ckd.v1.UncertaintyService, health and reflection.
type Server struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	grpc      registrar
	catalog   *catalog
	admission *admission
	budget    *budget
	lifecycle *lifecycle
	receipts  *receipts
	decider   *decider
	streams   *streams
}

// headerBytes bounds the headers of a call: gRPC itself would take 16 MiB, from anybody.
const headerBytes = 64 << 10

// readBufferBytes is the read buffer of a connection: large messages come in fewer reads.
const readBufferBytes = 128 << 10

// callsPerConnection is how many calls of all kinds a connection may have under way. Clients wait with
// further ones, or open another connection. Calls over HTTP share one connection.
const callsPerConnection = 256

// Windows of HTTP/2. gRPC would raise them to 16 MiB as it measures the bandwidth, for each stream. A
// message may be larger: gRPC makes room for the one that is being read.
const (
	streamWindow     = 512 << 10
	connectionWindow = 1 << 20
)

// New returns a Server without models. It reports NOT_SERVING until SetPolicies.
func New(o Options) (*Server, error) {
	if o.Refusals == nil {
		o.Refusals = NewRefusals(o.Logger)
	}
	if o.Credentials == nil {
		o.Credentials = tlsfiles.Credentials(nil)
	}
	s := &Server{
		catalog: newCatalog(o), lifecycle: newLifecycle(),
		receipts: &receipts{limits: o.Limits, log: o.Logger, metrics: o.Metrics},
	}
	s.budget = newBudget(o.Limits.OpenInputBytes,
		func(why refusedFor) { o.Metrics.Refused("open_bytes", string(why)) },
		func() int64 { return int64(s.MessageBytes()) + streamWindow })
	s.admission = newAdmission(o, s.budget, func() map[string]grpc.ServiceInfo { return s.grpc.GetServiceInfo() })
	unpack.Limit(s.MessageBytes, s.admission.roomToUnpack)
	rpc, err := rpcmetrics.New(o.Registry)
	if err != nil {
		return nil, fmt.Errorf("rpc metrics: %w", err)
	}
	s.decider = &decider{
		limits: o.Limits, log: o.Logger, metrics: o.Metrics, referred: o.Referred, refusals: o.Refusals,
		catalog: s.catalog, budget: s.budget, receipts: s.receipts, decisions: newDecisions(o.Decisions),
	}
	ends := &callEnds{o.Logger, o.Refusals, o.Metrics}
	s.streams = &streams{decider: s.decider, admission: s.admission, lifecycle: s.lifecycle, ends: ends}
	unary, stream := interceptors(rpc, o.Auth, ends, s.admission)
	options := []grpc.ServerOption{
		// A peer that connects and stays silent must not delay shutdown.
		grpc.ConnectionTimeout(5 * time.Second),
		// Finds peers that vanished within two minutes; clients may check us in the same way.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: o.Limits.ConnectionIdle,
			// A connection ends when its streams do. Clients that balance load would otherwise
			// open the next stream on it, and never find other replicas.
			MaxConnectionAge: o.Limits.StreamAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(wire.Codec{Unsent: s.budget.shared, Largest: s.MessageBytes}),
		grpc.Creds(connections{o.Credentials, o.Limits.SendStall, o.Metrics, o.Logger, s.budget}),
		grpc.InTapHandle(s.admission.tap),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxRecvMsgSize(o.Limits.mostReceived()),
		grpc.MaxSendMsgSize(maxSendBytes),
		grpc.MaxHeaderListSize(headerBytes),
		grpc.MaxConcurrentStreams(callsPerConnection),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
	}
	if o.Tracing != nil {
		options = append(options, grpc.StatsHandler(o.Tracing))
	}
	s.grpc = registrar{grpc.NewServer(options...)}
	s.grpc.RegisterService(&service, s)
	healthv1.RegisterHealthServer(s.grpc, s.lifecycle.health)
	reflection.Register(s.grpc)
	own := ckdv1.UncertaintyService_ServiceDesc.ServiceName
	rpc.Create(own, s.grpc.GetServiceInfo()[own])
	o.Metrics.ReadUse(s.admission.inUse)
	o.Metrics.ReadFullPassChecks(s.FullPassChecks)
	return s, nil
}

// GRPC returns the gRPC server, for the caller to serve and stop.
func (s *Server) GRPC() *grpc.Server { return s.grpc.Server }

// SetPolicies puts a set of policies in force, all at once. Inputs opened from now on are
// decided by it; open inputs keep their policies. An error changes nothing.
func (s *Server) SetPolicies(set *policy.Set) error {
	return s.catalog.replace(set, func(before, after models) {
		s.decider.decisions.setPolicies(after)
		serving := []string{""}
		for service := range s.grpc.GetServiceInfo() {
			serving = append(serving, service)
		}
		s.lifecycle.publish(slices.AppendSeq(serving, maps.Keys(after)), before, after)
	})
}

// Drain reports NOT_SERVING and lets streams open no more inputs. Each stream ends when its
// last open input is answered.
func (s *Server) Drain() { s.lifecycle.drain() }

// Kill ends the streams that are left.
func (s *Server) Kill() { s.lifecycle.kill() }

// GuardMemory refuses new calls and streams while the memory that clients hold comes near the memory
// limit, and ends connections if it comes nearer still, until ctx ends. It is called while no client
// is served yet, because what lives then is what the daemon needs for itself.
func (s *Server) GuardMemory(ctx context.Context) { s.admission.overload.run(ctx) }

// Idle reports whether no call of passes is in flight. Other calls, such as watches of the
// health, need not be waited for.
func (s *Server) Idle() bool { return s.admission.idle() }

// Stopping returns the status of calls that arrive while the daemon stops, and nil before.
func (s *Server) Stopping() error { return s.lifecycle.stopping() }

// Serving reports whether there are policies and the daemon wants traffic.
func (s *Server) Serving() bool { return !s.lifecycle.draining() && len(s.catalog.models()) > 0 }

// Policies returns the policies in force, in the order of their models' names.
func (s *Server) Policies() []*policy.Policy {
	var all []*policy.Policy
	for _, m := range s.catalog.models().sorted() {
		all = append(all, m.Policy())
	}
	return all
}

// MessageBytes returns the bytes of the largest message that is taken. With policies of larger
// inputs it grows.
func (s *Server) MessageBytes() int { return s.catalog.messageBytes() }

// FullPassChecks returns what full-pass checks have found, by the name of each model with a rule in
// force.
func (s *Server) FullPassChecks() map[string]fullpass.Status {
	all := map[string]fullpass.Status{}
	for name, m := range s.catalog.models() {
		if stopper := m.lean.Stopper(); stopper != nil {
			all[name] = stopper.Checks()
		}
	}
	return all
}

// ListModels implements the RPC.
func (s *Server) ListModels(ctx context.Context, _ *ckdv1.ListModelsRequest) (*ckdv1.ListModelsResponse, error) {
	who := auth.FromContext(ctx)
	response := &ckdv1.ListModelsResponse{}
	for _, m := range s.catalog.models().sorted() {
		if who.MayUse(m.ref.GetModel()) {
			response.Models = append(response.Models, s.describe(m))
		}
	}
	return response, nil
}

// GetModel implements the RPC.
func (s *Server) GetModel(ctx context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	m, err := s.catalog.find(ctx, r.GetModel())
	if err != nil {
		return nil, statusOf(err, location{}).Err()
	}
	return &ckdv1.GetModelResponse{Model: s.describe(m)}, nil
}

// describe returns what clients may know of a model.
func (s *Server) describe(m *model) *ckdv1.Model {
	return modelMessage(m, s.catalog.ledger.Load(), s.receipts.available(), s.decider.limits.message(s.MessageBytes()))
}
