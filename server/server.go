package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/ckd-project/ckd/engine"
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
}

// Server answers ckd.v1.UncertaintyService, health and reflection.
type Server struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	limits  Limits
	log     *zap.Logger
	metrics *metrics.Metrics
	grpc    *grpc.Server
	health  *health.Server

	catalog   atomic.Pointer[catalog]
	stopping  atomic.Bool
	streams   atomic.Int64 // open
	openBytes atomic.Int64 // held by open inputs
}

// catalog is the models that are served, by name; it is replaced as a whole.
type catalog map[string]*model

// model is a policy in force, with all that answering under it needs.
type model struct {
	*engine.Model
	metrics *metrics.Model
	ref     *ckdv1.PolicyRef
}

// New builds a Server without models, which says NOT_SERVING: see SetPolicies.
func New(o Options) (*Server, error) {
	s := &Server{limits: o.Limits, log: o.Logger, metrics: o.Metrics, health: health.NewServer()}
	s.catalog.Store(&catalog{})
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)

	rpc := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		grpcprom.WithHistogramBuckets([]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10}),
	))
	if err := o.Registry.Register(rpc); err != nil {
		return nil, fmt.Errorf("rpc metrics: %w", err)
	}
	unary, stream := chains(interceptors(rpc, o.Logger))
	s.grpc = grpc.NewServer(
		// A peer that is gone without a word is found out within a minute or two;
		// clients may ask for the same of us without being sent away.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(o.Limits.MessageBytes),
		grpc.MaxSendMsgSize(maxSendBytes),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
	)
	ckdv1.RegisterUncertaintyServiceServer(s.grpc, s)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	rpc.InitializeMetrics(s.grpc)
	return s, nil
}

// GRPC is the server to serve and stop.
func (s *Server) GRPC() *grpc.Server { return s.grpc }

// SetPolicies puts a set of policies in force, all at once: inputs that are
// opened from now on are decided by it, those open already keep theirs. On an
// error nothing has changed.
func (s *Server) SetPolicies(set *policy.Set) error {
	next, engines := catalog{}, map[string]*engine.Model{}
	for _, p := range set.All() {
		m, err := engine.New(p)
		if err != nil {
			return err
		}
		engines[p.Name] = m
	}
	for name, m := range engines {
		p := m.Policy()
		next[name] = &model{
			Model:   m,
			metrics: s.metrics.Model(p, m.Plan()),
			ref:     &ckdv1.PolicyRef{Model: name, Version: p.Version, Hash: p.Hash},
		}
	}
	before := *s.catalog.Swap(&next)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	for name := range next {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	for name := range before {
		if next[name] == nil {
			s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
			s.metrics.Remove(name)
		}
	}
	return nil
}

// SetServing says in the health service whether the daemon wants traffic.
func (s *Server) SetServing(serving bool) {
	s.stopping.Store(!serving)
	if serving {
		s.health.Resume()
	} else {
		s.health.Shutdown()
	}
}

// Serving reports whether there are policies and the daemon wants traffic.
func (s *Server) Serving() bool { return !s.stopping.Load() && len(*s.catalog.Load()) > 0 }

// Models are the policies in force, by name.
func (s *Server) Models() []*ckdv1.PolicyRef {
	models := *s.catalog.Load()
	var refs []*ckdv1.PolicyRef
	for _, name := range slices.Sorted(maps.Keys(models)) {
		refs = append(refs, models[name].ref)
	}
	return refs
}

// model finds a model by the name that a client sent.
func (s *Server) model(name string) (*model, error) {
	if m := (*s.catalog.Load())[name]; m != nil {
		return m, nil
	}
	return nil, &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, field: "model",
		message: fmt.Sprintf("no policy names the model %q", name), value: name, expected: "a name from ListModels",
	}
}

// ListModels implements the RPC.
func (s *Server) ListModels(context.Context, *ckdv1.ListModelsRequest) (*ckdv1.ListModelsResponse, error) {
	models := *s.catalog.Load()
	response := &ckdv1.ListModelsResponse{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		response.Models = append(response.Models, modelMessage(models[name]))
	}
	return response, nil
}

// GetModel implements the RPC.
func (s *Server) GetModel(_ context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	m, err := s.model(r.GetModel())
	if err != nil {
		return nil, statusOf(err, location{}).Err()
	}
	return &ckdv1.GetModelResponse{Model: modelMessage(m)}, nil
}
