package gateway_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/web/gateway"
)

// The gateway stands before a gRPC server in the same process. A request in JSON is a call of
// that server.
func Example() {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.New(server.Options{Limits: server.DefaultLimits(), Logger: zap.NewNop(), Metrics: m, Registry: registry})
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Parse(policy.File{Name: "policy.yaml", Data: []byte(`
models:
- name: retina
  classes: [healthy, diseased]
  critical: [diseased]
  primary: {score: c_crit_max, threshold: 0.02}
  fallback: {score: cbec, threshold: 0.003}
`)})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.SetPolicies(set); err != nil {
		log.Fatal(err)
	}
	pipe := gateway.Pipe()
	go func() { _ = s.GRPC().Serve(pipe) }() // until Stop
	conn, err := pipe.Client()
	if err != nil {
		log.Fatal(err)
	}

	body := `{"layout":"LAYOUT_SNK","passes":4,"inputs":1,"values":[0.9,0.1, 0.8,0.2, 0.1,0.9, 0.3,0.7]}`
	answer := httptest.NewRecorder()
	gateway.New(conn, gateway.Options{}).ServeHTTP(answer,
		httptest.NewRequest(http.MethodPost, "/v1/models/retina:decompose", strings.NewReader(body)))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), `"action":"ACTION_DEFER"`))
	_ = conn.Close() // all calls are over
	s.GRPC().Stop()
	// Output: 200 true
}
