package integration_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

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
			answers := expectedAnswers(t, replayLines(t, d))
			at := p.Scraped(time.Now())

			for _, query := range queries {
				i := slices.IndexFunc(answers, func(a answer) bool { return strings.HasPrefix(query, a.query) })
				if i < 0 {
					t.Errorf("the documents show a query that this test does not know: %s", query)
					continue
				}
				want := answers[i].want
				if needs := answers[i].needs; needs != "" && needs != mode.histograms {
					want = nil
				}
				checkQuery(t, p, query, at, want)
				checkQuery(t, p, overAllTime(query), at, want)
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

// answer holds what Prometheus must answer to the query with this beginning.
type answer struct {
	query string
	needs string              // form of histograms that the query needs
	want  map[string]interval // by the labels of the series
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
	Index                 int
	C                     []float64
	Degenerate, Saturated bool
	Pairs                 []struct {
		A, B      int
		Confusion float64
	}
	Decision struct {
		Action, Score, Reason string
		Value                 float64
		Class                 *int
	}
}

// replayLines replays a recording and returns its lines.
func replayLines(t *testing.T, d *daemon) []replayLine {
	t.Helper()
	out := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout
	lines := decodeLines[replayLine](t, out)
	if len(lines) != 2126 {
		t.Fatalf("%d lines, want 2126", len(lines))
	}
	return lines
}

// expectedAnswers computes from the lines what Prometheus must answer.
func expectedAnswers(t *testing.T, lines []replayLine) []answer {
	t.Helper()
	inputs := float64(len(lines))
	var deferred, absent float64
	var sumC, deciding [3]float64
	var c [3][]float64
	confusion := make(map[[2]int]float64)
	for _, line := range lines {
		for k := range c {
			c[k] = append(c[k], line.C[k])
			sumC[k] += line.C[k]
		}
		for _, pair := range line.Pairs {
			confusion[[2]int{pair.A, pair.B}] += pair.Confusion
		}
		if line.Degenerate && !line.Saturated {
			absent++
		}
		if line.Decision.Action == "defer" {
			deferred++
			if line.Decision.Class != nil {
				deciding[*line.Decision.Class]++
			}
		}
	}
	for k := range c {
		slices.Sort(c[k])
	}
	edges := documentedEdges(t)
	const m = "fetal-health"
	classes := []model.LabelValue{"normal", "suspect", "pathologic"}
	ofModel := func(v float64) map[string]interval {
		return map[string]interval{model.Metric{"model": m}.String(): about(v)}
	}
	ofClasses := func(value func(k int) interval) map[string]interval {
		want := make(map[string]interval)
		for k, class := range classes {
			want[model.Metric{"model": m, "class": class}.String()] = value(k)
		}
		return want
	}
	meanC := ofClasses(func(k int) interval { return about(sumC[k] / inputs) })
	matrix, matrixOfAll := make(map[string]interval), make(map[string]interval)
	for pair, sum := range confusion {
		a, b := classes[pair[0]], classes[pair[1]]
		matrix[model.Metric{"model": m, "class_a": a, "class_b": b}.String()] = about(sum / inputs)
		matrixOfAll[model.Metric{"class_a": a, "class_b": b}.String()] = about(sum / inputs)
	}
	return []answer{
		{query: `sum by (model) (rate(ckd_decisions_total{action="defer"}`, want: ofModel(deferred / inputs)},
		// The policy has no risk, so this has no series.
		{query: `1000 * sum by (model) (rate(ckd_expected_misses_total[1h]))`},
		// Nor is there a ledger.
		{query: `max by (model, version, verdict) (ckd_promise_state == 1`},
		{query: `max by (model, policy, version) (ckd_promise{figure="critical_miss_rate"`},
		{query: `sum by (model, policy, version, stratum) (ckd_promise_reviews{state="answered"})`},
		{
			query: `histogram_quantile(0.9, sum by (model, class, le) (rate(ckd_class_epistemic_nats_bucket[`,
			needs: "classic",
			want:  ofClasses(func(k int) interval { return about(classicQuantile(0.9, c[k], edges)) }),
		},
		{
			query: `histogram_quantile(0.9, sum by (model, class) (rate(ckd_class_epistemic_nats[`,
			needs: "native",
			want:  ofClasses(func(k int) interval { return nativeQuantile(0.9, c[k]) }),
		},
		{query: `sum by (model, class) (rate(ckd_class_epistemic_nats_sum[`, needs: "classic", want: meanC},
		{query: `sum by (model, class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, want: matrix},
		{query: `sum by (class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, want: matrixOfAll},
		{
			query: `sum by (model, class) (rate(ckd_class_deciding_total[`,
			want:  ofClasses(func(k int) interval { return about(deciding[k] / deferred) }),
		},
		{query: `(sum by (model) (rate(ckd_inputs_degenerate_total[`, want: ofModel(absent / inputs)},
	}
}

// documentedEdges returns the edges of the classic histogram of C_k.
func documentedEdges(t *testing.T) []float64 {
	t.Helper()
	row := regexp.MustCompile(`\| C_k, risk \| ([\d. ]+) \|`).FindStringSubmatch(readPage(t, "metrics.md"))
	if row == nil {
		t.Fatal("docs/metrics.md has no row with the edges of C_k")
	}
	var edges []float64
	for _, field := range strings.Fields(row[1]) {
		edge, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		edges = append(edges, edge)
	}
	return edges
}

// classicQuantile computes a quantile from classic buckets as Prometheus does: by linear
// interpolation within the bucket of its rank.
func classicQuantile(q float64, sorted, edges []float64) float64 {
	rank := q * float64(len(sorted))
	lower, before := 0.0, 0.0
	for _, upper := range edges {
		atMost := float64(sort.Search(len(sorted), func(i int) bool { return sorted[i] > upper }))
		if atMost >= rank {
			return lower + (upper-lower)*(rank-before)/(atMost-before)
		}
		lower, before = upper, atMost
	}
	return lower
}

// nativeQuantile returns the native bucket of the quantile's rank. Schema 3 has eight buckets to a
// doubling, each with its upper edge. Where in the bucket Prometheus puts the quantile depends on
// its version.
func nativeQuantile(q float64, sorted []float64) interval {
	c := sorted[int(math.Ceil(q*float64(len(sorted))))-1]
	upper := math.Ceil(8 * math.Log2(c))
	return interval{about(math.Exp2((upper - 1) / 8)).low, about(math.Exp2(upper / 8)).high}
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
	rules, err := filepath.Abs("../deploy/prometheus/rules")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.ReplaceAll(string(text), "- rules/", "- "+rules+"/")
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
		if r := testbed.Run(t, exec.CommandContext(inTime(t), promtool, "check", "config", file)); r.Code != 0 || !strings.Contains(r.Stdout, "2 rule files found") {
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
