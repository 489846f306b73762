package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/web"
)

// state is a daemon that wants traffic.
type state struct{}

func (state) Serving() bool                              { return true }
func (state) Policies() []*policy.Policy                 { return nil }
func (state) FullPassChecks() map[string]fullpass.Status { return nil }
func (state) Degenerate() map[string]string              { return nil }

// The admin address answers probes. *server.Server is the usual State.
func ExampleAdmin() {
	handler := web.Admin(web.AdminOptions{
		Registry: prometheus.NewRegistry(), State: state{}, Page: http.NotFoundHandler(),
		FailedReloads: func() string { return "" }, Log: zap.NewNop(),
	})
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 ok
}
