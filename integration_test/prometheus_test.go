package integration_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestPrometheus runs every query of the docs on a Prometheus that scrapes the daemon. The answers
// must match the lines of a replay.
func TestPrometheus(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	queries := documentedQueries(t)
	for _, mode := range []struct {
		histograms string // form in which Prometheus stores them
		flags      []string
	}{
		{"classic", nil},
		{"native", []string{"--enable-feature=native-histograms"}},
	} {
		t.Run(mode.histograms, func(t *testing.T) {
			t.Parallel() // it mostly waits for Prometheus
			d := serve(t, "--policy", writePolicy(t, policyText), "--class-buckets")
			p := testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, d), mode.flags...)
			// Every counter was scraped at 0 before the first input, and at is the time of a
			// scrape, so that a rate covers all that was counted.
			p.Scraped(time.Time{})
			answers := expectedAnswers(t, d)
			at := p.Scraped(time.Now())

			shown := make([]bool, len(answers))
			for _, query := range queries {
				i := slices.IndexFunc(answers, func(a answer) bool { return strings.HasPrefix(query, a.query) })
				if i < 0 {
					t.Errorf("the documents show a query that this test does not know: %s", query)
					continue
				}
				shown[i] = true
				want := answers[i]
				if want.needs != "" && want.needs != mode.histograms {
					want.series = 0
				}
				checkBounds(t, p, query, at, want)
				if !want.perSecond {
					checkBounds(t, p, overAllTime(query), at, want)
				}
			}
			for i, a := range answers {
				if !shown[i] {
					t.Errorf("the documents no longer show the query that begins with %s", a.query)
				}
			}
		})
	}
}

// documentedQueries returns the PromQL queries of the docs. In the docs an indented line continues
// a query.
func documentedQueries(t *testing.T) []string {
	t.Helper()
	var queries []string
	for _, name := range []string{"metrics.md", "../README.md"} {
		for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(readPage(t, name), -1) {
			queries = append(queries, strings.Split(strings.ReplaceAll(block[1], "\n  ", " "), "\n")...)
		}
	}
	return queries
}

// overAllTime returns the query without its rates, so that Prometheus extrapolates nothing.
func overAllTime(query string) string {
	return regexp.MustCompile(`rate\(([^\[]+)\[\w+\]\)`).ReplaceAllString(query, "$1")
}

// answer bounds what Prometheus must answer to the query with this beginning.
type answer struct {
	query     string
	needs     string // form of histograms that the query needs
	perSecond bool   // a rate, which over all time is another number
	series    int
	bounds    interval // of each value
}

// interval includes its ends.
type interval struct{ low, high float64 }

// about returns the interval around v that allows for rounding in sums of thousands of terms.
func about(v float64) interval {
	slack := 1e-9 * math.Abs(v)
	return interval{v - slack, v + slack}
}

// replayLine holds what these tests read of a line that replay prints.
type replayLine struct {
	C        []float64
	Decision struct{ Action, Score string }
}

// expectedAnswers replays a recording and computes from its lines what Prometheus must answer.
func expectedAnswers(t *testing.T, d *daemon) []answer {
	t.Helper()
	const classes, pairs = 3, 2
	lines := decodeLines[replayLine](t, mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout)
	if len(lines) != 2126 {
		t.Fatalf("%d lines, want 2126", len(lines))
	}
	inputs := float64(len(lines))
	var deferred, fallback, most float64
	var meanC [classes]float64
	for _, line := range lines {
		for k, c := range line.C {
			meanC[k] += c / inputs
			most = max(most, c)
		}
		if line.Decision.Score == "cbec" {
			fallback++
		}
		if line.Decision.Action == "defer" {
			deferred++
		}
	}
	means := interval{about(slices.Min(meanC[:])).low, about(slices.Max(meanC[:])).high}
	share, quantile := interval{0, 1}, interval{0, 2 * most} // buckets are wide
	return []answer{
		{query: `sum by (model) (rate(ckd_decisions_total{action="defer"}`, series: 1, bounds: about(deferred / inputs)},
		{query: `sum by (model) (rate(ckd_inputs_fallback_total[5m])`, series: 1, bounds: about(fallback / inputs)},
		// The policy has no risk, no early stopping and no audit, and there is no ledger: these have no
		// series. TestDashboardsShow has those of early stopping.
		{query: `1000 * sum by (model) (rate(ckd_expected_misses_total[1h]))`},
		{query: `sum by (model) (rate(ckd_receipts_eligible_total[1h])) /`},
		{query: `1000 * sum by (model) (rate(ckd_reviews_total{stratum!="deferred"}[1h])) /`},
		{query: `sum by (model) (increase(ckd_reviews_total{stratum!="deferred"}[1d])) /`},
		{query: `sum by (model) (increase(ckd_reviews_total[7d])) -`},
		{query: `max by (model, version, verdict) (ckd_promise_state == 1`},
		{query: `max by (model, policy, version) (ckd_promise{figure="critical_fnr"`},
		{query: `sum by (model, stratum) (delta(ckd_promise_reviews{state="answered"`},
		{query: `sum by (model, policy, version, stratum) (ckd_promise_reviews{state="answered"})`},
		{query: `sum by (status) (increase(ckd_outcomes_total{status=~`},
		{query: `sum by (model) (rate(ckd_passes_used_sum[5m]))`},
		{query: `1 + sum by (model) (rate(ckd_passes_saved_total[5m]))`},
		{query: `sum by (model) (increase(ckd_early_stop_disagreements_total[1d]))`},
		{
			query: `histogram_quantile(0.9, sum by (model, class, le) (rate(ckd_class_epistemic_nats_bucket[`,
			needs: "classic", series: classes, bounds: quantile,
		},
		{
			query: `histogram_quantile(0.9, sum by (model, class) (rate(ckd_class_epistemic_nats[`,
			needs: "native", series: classes, bounds: quantile,
		},
		{query: `sum by (model, class) (rate(ckd_class_epistemic_nats_sum[`, needs: "classic", series: classes, bounds: means},
		{query: `histogram_sum(sum by (model, class) (rate(ckd_class_epistemic_nats[`, needs: "native", series: classes, bounds: means},
		{query: `sum by (model, class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, series: pairs, bounds: interval{0, most}},
		{query: `sum by (class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, series: pairs, bounds: interval{0, most}},
		{query: `sum by (model, class) (rate(ckd_class_unreliable_total[5m])) / on (model)`, series: classes, bounds: share},
		{query: `sum by (model, class) (rate(ckd_class_deciding_total[`, series: classes, bounds: share},
		{query: `(sum by (model) (rate(ckd_inputs_degenerate_total[`, series: 1, bounds: share},
		{
			query:     `sum by (instance, model) (rate(ckd_decisions_total{action="defer"}[5m]))`,
			perSecond: true, series: 1, bounds: about(deferred / (5 * 60)),
		},
	}
}

// checkBounds runs a query at the given time and checks the number and the values of its series.
func checkBounds(t *testing.T, p *testbed.Prometheus, query, at string, want answer) {
	t.Helper()
	got := p.Query(query, at)
	if len(got) != want.series {
		t.Errorf("%s\nreturns %d series, want %d: %v", query, len(got), want.series, got)
	}
	for _, sample := range got {
		if v := float64(sample.Value); !(want.bounds.low <= v && v <= want.bounds.high) { // NaN lies in no interval
			t.Errorf("%s\n%v is %v, want %v", query, sample.Metric, v, want.bounds)
		}
	}
}

// scrapeConfig writes the project's scrape config with the daemons' addresses and a shorter interval.
func scrapeConfig(t *testing.T, promtool string, daemons ...*daemon) string {
	t.Helper()
	var targets []string
	for _, d := range daemons {
		targets = append(targets, strings.TrimPrefix(d.Admin, "http://"))
	}
	text, err := os.ReadFile("../deploy/prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for old, replacement := range map[string]string{
		"scrape_interval: 15s":          "scrape_interval: 1s",
		`- targets: ["127.0.0.1:9590"]`: "- targets: " + jsonText(t, targets),
	} {
		if strings.Count(config, old) != 1 {
			t.Fatalf("deploy/prometheus/prometheus.yaml does not have %s once", old)
		}
		config = strings.Replace(config, old, replacement, 1)
	}
	path := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../deploy/prometheus/prometheus.yaml", path} {
		if r := testbed.Run(t, exec.CommandContext(inTime(t), promtool, "check", "config", file)); r.Code != 0 {
			t.Fatalf("promtool check config %s: exit %d\n%s%s", file, r.Code, r.Stdout, r.Stderr)
		}
	}
	return path
}

// checkQuery runs a query at the given time. Prometheus must return exactly the wanted series.
func checkQuery(t *testing.T, p *testbed.Prometheus, query, at string, want map[string]interval) {
	t.Helper()
	got := p.Query(query, at)
	if len(got) != len(want) {
		t.Errorf("%s\nreturns %d series, want %d: %v", query, len(got), len(want), got)
	}
	for _, sample := range got {
		value := float64(sample.Value)
		bounds, wanted := want[sample.Metric.String()]
		if !wanted {
			t.Errorf("%s\nreturns the series %v, which is none of %v", query, sample.Metric, want)
		} else if !(bounds.low <= value && value <= bounds.high) { // NaN lies in no interval
			t.Errorf("%s\n%v is %v, want %v", query, sample.Metric, value, bounds)
		}
	}
}
