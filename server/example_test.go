package server_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/policy/store"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// A server gets its policies and answers calls. Its GRPC method returns what listens on sockets.
func Example() {
	registry := prometheus.NewRegistry()
	series, err := metrics.New(registry, metrics.Options{ClassLabels: 32, RejectReasons: server.RejectReasons()})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := server.New(server.Options{
		Limits: server.DefaultLimits(), Logger: zap.NewNop(), Metrics: series, Registry: registry,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Kill()
	policies, err := store.Load("../deploy/policy/fetal-health.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.SetPolicies(policies); err != nil {
		fmt.Println(err)
		return
	}
	reply, err := s.GetModel(context.Background(), &ckdv1.GetModelRequest{Model: "fetal-health"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.GetModel().GetClasses())
	// Output: [normal suspect pathologic]
}
