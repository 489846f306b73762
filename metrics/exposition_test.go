package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/metrics/internal/sharded"
)

// TestExposition reads the histograms as Prometheus does: as protobuf they are classic and native
// at once, as text they are classic.
func TestExposition(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(p, m)
	const inputs = 500
	outcomes(t, m, randomInputs(3, inputs, 20, 3), func(o *engine.Outcome) { model.Observe(0, o.Result, o.Decision) })

	get := func(accept string) (io.Reader, expfmt.Format) {
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		request.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, request)
		return answer.Body, expfmt.ResponseFormat(answer.Result().Header)
	}

	body, format := get("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if format.FormatType() != expfmt.TypeProtoDelim {
		t.Fatalf("answered %s, want protobuf", format)
	}
	want := map[string]sharded.Scale{
		"ckd_class_epistemic_nats": sharded.Contribution, "ckd_class_skewness_ratio": sharded.Ratio,
		"ckd_mutual_information_nats": sharded.Total, "ckd_predictive_entropy_nats": sharded.Entropy, "ckd_epistemic_sum_nats": sharded.Total,
	}
	seen := 0
	for decoder := expfmt.NewDecoder(body, format); ; {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		of, ok := want[f.GetName()]
		if !ok {
			t.Errorf("histogram %s was not expected", f.GetName())
		}
		for _, m := range f.GetMetric() {
			checkHistogram(t, f.GetName(), m.GetHistogram(), of, inputs)
			seen++
		}
	}
	if seen != 2*3+3 {
		t.Errorf("%d histograms, want 9", seen)
	}

	body, _ = get("application/openmetrics-text;version=1.0.0")
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`ckd_class_skewness_ratio_bucket{class="b",model="m",le="0.3"} `,
		`ckd_class_epistemic_nats_count{class="b",model="m"} 500`,
		"\n# EOF\n",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the text has no %q", line)
		}
	}
}

// checkHistogram compares the two forms of a histogram.
func checkHistogram(t *testing.T, name string, h *dto.Histogram, of sharded.Scale, inputs uint64) {
	t.Helper()
	var edges []float64
	for _, b := range h.GetBucket() {
		edges = append(edges, b.GetUpperBound())
	}
	if !slices.Equal(edges, of.Edges) || len(edges) > 12 {
		t.Errorf("%s: classic edges %v, want %v", name, edges, of.Edges)
	}
	if h.GetSchema() != 3 || h.GetZeroThreshold() != of.ZeroThreshold {
		t.Errorf("%s: schema %d, zero threshold %v, want 3, %v", name, h.GetSchema(), h.GetZeroThreshold(), of.ZeroThreshold)
	}
	native, bucket := h.GetZeroCount(), int64(0)
	for _, delta := range h.GetPositiveDelta() {
		bucket += delta
		native += uint64(bucket)
	}
	if native != inputs || h.GetSampleCount() != inputs || len(h.GetPositiveSpan()) == 0 {
		t.Errorf("%s: %d in native buckets, %d in all, want %d", name, native, h.GetSampleCount(), inputs)
	}
}
