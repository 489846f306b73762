// Package servertest holds what the tests of servers share: a gRPC server behind connections in
// memory, a peer that sends it any frames, sums of metrics, and the details of errors.
package servertest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Address is the address to dial with Through.
const Address = "passthrough:bufconn"

// Serve serves over connections in memory until the end of the test.
func Serve(t testing.TB, s *grpc.Server) *bufconn.Listener {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l
}

// Through makes a connection to Address lead to a listener.
func Through(l *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

// Dial returns a connection to a listener, in plaintext, that closes at the end of the test.
func Dial(t testing.TB, l *bufconn.Listener, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{Through(l), grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient(Address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// Series returns the series of a metric that have the given labels, which are pairs of name and
// value. An empty name stands for every metric.
func Series(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (series []*dto.Metric) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if name != "" && family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			matches := true
			for i := 0; i < len(labels); i += 2 {
				value, ok := has[labels[i]]
				matches = matches && ok && value == labels[i+1]
			}
			if matches {
				series = append(series, m)
			}
		}
	}
	return series
}

// Sum adds the values of a metric, or the counts of a histogram, over the series with the given
// labels.
func Sum(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, m := range Series(t, from, name, labels...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// Eventually waits until Sum returns a value: the server may still be updating the metric.
func Eventually(t testing.TB, from prometheus.Gatherer, want float64, name string, labels ...string) {
	t.Helper()
	var got float64
	for range 6000 {
		if got = Sum(t, from, name, labels...); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s%v is %v, want %v", name, labels, got, want)
}

// Fault holds the details of an error of the API.
type Fault struct {
	Reason   string // without the prefix ERROR_REASON_; empty if the error has no details of ckd.v1
	Metadata map[string]string
	Field    string
	Retry    time.Duration
}

// FaultOf returns the details of an error.
func FaultOf(err error) (f Fault) {
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == "ckd.v1" {
				f.Reason, f.Metadata = d.GetReason(), d.GetMetadata()
			}
		case *errdetails.BadRequest:
			f.Field = d.GetFieldViolations()[0].GetField()
		case *errdetails.RetryInfo:
			f.Retry = d.GetRetryDelay().AsDuration()
		}
	}
	return f
}
