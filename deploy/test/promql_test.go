package deploytest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// labelsOfTargets lists the labels that Prometheus and its discovery add to every series.
var labelsOfTargets = []string{"namespace", "job", "instance"}

// otherMetrics lists the metrics, with their labels, that queries may use beside those of
// docs/metrics.md.
var otherMetrics = map[string][]string{
	"up": nil,

	"kube_pod_container_resource_limits": {"pod", "container", "resource"}, // of kube-state-metrics

	"grpc_server_started_total":           {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_handled_total":           {"grpc_type", "grpc_service", "grpc_method", "grpc_code"},
	"grpc_server_msg_received_total":      {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_msg_sent_total":          {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_handling_seconds_bucket": {"grpc_type", "grpc_service", "grpc_method", "le"},
	"grpc_server_handling_seconds_sum":    {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_handling_seconds_count":  {"grpc_type", "grpc_service", "grpc_method"},

	"go_gc_duration_seconds_sum":    nil,
	"go_gc_gomemlimit_bytes":        nil,
	"go_goroutines":                 nil,
	"go_memstats_heap_inuse_bytes":  nil,
	"go_sched_gomaxprocs_threads":   nil,
	"process_cpu_seconds_total":     nil,
	"process_max_fds":               nil,
	"process_open_fds":              nil,
	"process_resident_memory_bytes": nil,
	"process_start_time_seconds":    nil,
}

// knownMetrics returns the labels of every metric that a query may use.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	known := maps.Clone(otherMetrics)
	rows := regexp.MustCompile("(?m)^\\| `(ckd_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]+) \\|").FindAllStringSubmatch(getFile(t, "../../docs/metrics.md"), -1)
	if len(rows) < 40 {
		t.Fatalf("docs/metrics.md has %d metrics, expected over 40", len(rows))
	}
	for _, row := range rows {
		var labels []string
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, label[1])
		}
		if row[2] != "histogram" {
			known[row[1]] = labels
			continue
		}
		known[row[1]] = labels // native
		known[row[1]+"_bucket"] = append(slices.Clone(labels), "le")
		known[row[1]+"_sum"], known[row[1]+"_count"] = labels, labels
	}
	return known
}

// parsePromQL parses a query as Prometheus does without experimental features.
func parsePromQL(query string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(query)
}

// checkQuery parses a query and checks that its metrics and labels are known.
func checkQuery(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	expr, err := parsePromQL(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return
	}
	var all []string // labels of any series of the query
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		labels, is := known[selector.Name]
		if !is {
			t.Errorf("%s: %q is no metric of docs/metrics.md\n%s", where, selector.Name, query)
			return nil
		}
		labels = append(slices.Clone(labels), labelsOfTargets...)
		for _, m := range selector.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(labels, m.Name) {
				t.Errorf("%s: %s has no label %q, only %s\n%s", where, selector.Name, m.Name, strings.Join(labels, ", "), query)
			}
		}
		all = append(all, labels...)
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var named []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			named = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				named = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, label := range named {
			if !slices.Contains(all, label) {
				t.Errorf("%s: no series of the query has the label %q\n%s", where, label, query)
			}
		}
		return nil
	})
}
