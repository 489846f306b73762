package integration_test

import (
	"encoding/json"
	"fmt"
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
)

// TestPrometheus: a Prometheus that scrapes the daemon answers every query that
// the documents show, and with the values that the lines of a replay give.
func TestPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("a Prometheus takes seconds")
	}
	t.Parallel()
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	queries := documentedQueries(t)
	for _, mode := range []struct {
		histograms string // the form in which Prometheus takes them
		flags      []string
	}{
		{"classic", nil},
		{"native", []string{"--enable-feature=native-histograms"}},
	} {
		t.Run(mode.histograms, func(t *testing.T) {
			t.Parallel() // most of the time Prometheus waits
			d := serve(t, "--policy", writePolicy(t, policyText))
			p := testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, d), mode.flags...)
			// With every counter seen at 0 before the first input, and at an instant
			// that was scraped, a rate is all that was counted over its range.
			p.Scraped(time.Time{})
			answers := expectedAnswers(t, d, replayLines(t, d))
			at := p.Scraped(time.Now())

			shown := make([]bool, len(answers))
			for _, query := range queries {
				i := slices.IndexFunc(answers, func(a answer) bool { return strings.HasPrefix(query, a.query) })
				if i < 0 {
					t.Errorf("the documents show a query that this test does not know: %s", query)
					continue
				}
				shown[i] = true
				want := answers[i].want
				if needs := answers[i].needs; needs != "" && needs != mode.histograms {
					want = nil
				}
				checkQuery(t, p, query, at, want)
				if !answers[i].perSecond {
					checkQuery(t, p, overAllTime(query), at, want)
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

// documentedQueries reads the PromQL that the documents show, each query on one
// line. In the documents a query goes on where a line is indented.
func documentedQueries(t *testing.T) []string {
	t.Helper()
	var queries []string
	for _, name := range []string{"docs/metrics.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
			queries = append(queries, strings.Split(strings.ReplaceAll(block[1], "\n  ", " "), "\n")...)
		}
	}
	return queries
}

// overAllTime is the query without its rates: over counters and histograms as
// they are, where nothing is extrapolated.
func overAllTime(query string) string {
	return regexp.MustCompile(`rate\(([^\[]+)\[\w+\]\)`).ReplaceAllString(query, "$1")
}

// answer to the query that begins with the given text.
type answer struct {
	query     string
	needs     string              // form of histograms without which there is no answer
	perSecond bool                // not a share or a quantile: over all time it is another number
	want      map[string]interval // by the labels of the series
}

// interval that a value lies in, its ends included.
type interval struct{ low, high float64 }

// about is the number, up to the rounding of sums of thousands of terms.
func about(v float64) interval {
	slack := 1e-9 * math.Abs(v)
	return interval{v - slack, v + slack}
}

// replayLine is what the expected answers need of a line that replay prints.
type replayLine struct {
	C, Skewness           []float64
	Degenerate, Saturated bool
	Pairs                 []struct {
		A, B      int
		Confusion float64
	}
	Decision struct {
		Action, Score string
		Class         *int
	}
}

// replayLines sends a recording to the daemon.
func replayLines(t *testing.T, d *daemon) []replayLine {
	t.Helper()
	out := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout
	var lines []replayLine
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var line replayLine
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if len(lines) != 2126 {
		t.Fatalf("%d lines, want 2126", len(lines))
	}
	return lines
}

// expectedAnswers computes from the lines what Prometheus has to answer.
func expectedAnswers(t *testing.T, d *daemon, lines []replayLine) []answer {
	t.Helper()
	inputs := float64(len(lines))
	var deferred, fallback, absent float64
	var sumC, unreliable, deciding [3]float64
	var c [3][]float64
	confusion := make(map[[2]int]float64)
	for _, line := range lines {
		for k := range c {
			c[k] = append(c[k], line.C[k])
			sumC[k] += line.C[k]
			if line.Skewness[k] > 0.3 {
				unreliable[k]++
			}
		}
		for _, pair := range line.Pairs {
			confusion[[2]int{pair.A, pair.B}] += pair.Confusion
		}
		if line.Degenerate && !line.Saturated {
			absent++
		}
		if line.Decision.Score == "cbec" {
			fallback++
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
	_, text, _ := d.Get("/metrics")
	hash := regexp.MustCompile(`ckd_policy_info{.*hash="(\w+)"`).FindStringSubmatch(text)
	if hash == nil {
		t.Fatal("the daemon does not tell the hash of its policy")
	}

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
	unreliableShare := ofClasses(func(k int) interval { return about(unreliable[k] / inputs) })
	matrix, matrixOfAll := make(map[string]interval), make(map[string]interval)
	for pair, sum := range confusion {
		a, b := classes[pair[0]], classes[pair[1]]
		matrix[model.Metric{"model": m, "class_a": a, "class_b": b}.String()] = about(sum / inputs)
		matrixOfAll[model.Metric{"class_a": a, "class_b": b}.String()] = about(sum / inputs)
	}
	onInstance := model.Metric{
		"instance": model.LabelValue(strings.TrimPrefix(d.Admin, "http://")), "model": m,
		"version": "integration", "hash": model.LabelValue(hash[1]),
	}.String()
	return []answer{
		{query: `sum by (model) (rate(ckd_decisions_total{action="defer"}`, want: ofModel(deferred / inputs)},
		{query: `sum by (model) (rate(ckd_inputs_fallback_total[5m])`, want: ofModel(fallback / inputs)},
		// The policy has no rule to settle by: no series. TestDashboardsShow has one.
		{query: `sum by (model) (rate(ckd_passes_used_sum[5m]))`},
		{query: `1 + sum by (model) (rate(ckd_passes_saved_total[5m]))`},
		{query: `sum by (model) (increase(ckd_settle_disagreements_total[1d]))`},
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
		{query: `histogram_sum(sum by (model, class) (rate(ckd_class_epistemic_nats[`, needs: "native", want: meanC},
		{query: `sum by (model, class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, want: matrix},
		{query: `sum by (class_a, class_b) (rate(ckd_pair_confusion_nats_total[`, want: matrixOfAll},
		{query: `sum by (model, class) (rate(ckd_class_unreliable_total[5m])) / on (model)`, want: unreliableShare},
		{
			query: `sum by (model, class) (rate(ckd_class_unreliable_total[5m])) / sum by (model, class)`,
			needs: "classic",
			want:  unreliableShare,
		},
		{
			query: `sum by (model, class) (rate(ckd_class_deciding_total[`,
			want:  ofClasses(func(k int) interval { return about(deciding[k] / deferred) }),
		},
		{query: `(sum by (model) (rate(ckd_inputs_degenerate_total[`, want: ofModel(absent / inputs)},
		{
			query:     `sum by (instance, model) (rate(ckd_decisions_total{action="defer"}[5m]))`,
			perSecond: true,
			want:      map[string]interval{onInstance: about(deferred / (5 * 60))},
		},
	}
}

// documentedEdges is the classic edges of C_k.
func documentedEdges(t *testing.T) []float64 {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`\| C_k \| ([\d. ]+) \|`).FindSubmatch(text)
	if row == nil {
		t.Fatal("docs/metrics.md has no row with the edges of C_k")
	}
	var edges []float64
	for _, field := range strings.Fields(string(row[1])) {
		edge, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		edges = append(edges, edge)
	}
	return edges
}

// classicQuantile is how Prometheus reads a quantile from classic buckets: on a
// straight line through the one that holds its rank.
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

// nativeQuantile is the native bucket that holds the quantile's rank, of schema
// 3: eight to a doubling, the upper edge included. Where in it Prometheus puts
// the quantile depends on its version.
func nativeQuantile(q float64, sorted []float64) interval {
	c := sorted[int(math.Ceil(q*float64(len(sorted))))-1]
	upper := math.Ceil(8 * math.Log2(c))
	return interval{about(math.Exp2((upper - 1) / 8)).low, about(math.Exp2(upper / 8)).high}
}

// scrapeConfig is the project's scrape config, but for the address of the daemon
// and a shorter interval.
func scrapeConfig(t *testing.T, promtool string, d *daemon) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for old, replacement := range map[string]string{
		"scrape_interval: 15s":          "scrape_interval: 1s",
		`- targets: ["127.0.0.1:9590"]`: fmt.Sprintf("- targets: [%q]", strings.TrimPrefix(d.Admin, "http://")),
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

// checkQuery asks a query as of the given time. Prometheus must return the wanted
// series and no others.
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
		} else if !(bounds.low <= value && value <= bounds.high) { // NaN is never in them
			t.Errorf("%s\n%v is %v, want %v", query, sample.Metric, value, bounds)
		}
	}
}
