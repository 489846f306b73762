package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// TestPrometheus: a Prometheus that scrapes the daemon answers every query that
// the documents show, and with the values that the lines of a replay give.
func TestPrometheus(t *testing.T) {
	binary, promtool := program(t, "prometheus", "PROMETHEUS"), program(t, "promtool", "PROMTOOL")
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
			p := startPrometheus(t, binary, scrapeConfig(t, promtool, d), mode.flags...)
			// With every counter seen at 0 before the first input, and at an instant
			// that was scraped, a rate is all that was counted over its range.
			p.scraped(time.Time{})
			answers := expectedAnswers(t, d, replayLines(t, d))
			at := p.scraped(time.Now())

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
				p.check(query, at, want)
				if !answers[i].perSecond {
					p.check(overAllTime(query), at, want)
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
	out := mustRun(t, "replay", "--addr", d.grpc[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy")).stdout
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
	_, text, _ := d.get("/metrics")
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
		"instance": model.LabelValue(strings.TrimPrefix(d.admin, "http://")), "model": m,
		"version": "integration", "hash": model.LabelValue(hash[1]),
	}.String()
	return []answer{
		{query: `sum by (model) (rate(ckd_decisions_total{action="defer"}`, want: ofModel(deferred / inputs)},
		{query: `sum by (model) (rate(ckd_decisions_total{score="cbec"}`, want: ofModel(fallback / inputs)},
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
		`- targets: ["127.0.0.1:9590"]`: fmt.Sprintf("- targets: [%q]", strings.TrimPrefix(d.admin, "http://")),
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, file := range []string{"../deploy/prometheus/prometheus.yaml", path} {
		if r := runCommand(t, exec.CommandContext(ctx, promtool, "check", "config", file)); r.code != 0 {
			t.Fatalf("promtool check config %s: exit %d\n%s%s", file, r.code, r.stdout, r.stderr)
		}
	}
	return path
}

// prometheus is a running Prometheus.
type prometheus struct {
	t       *testing.T
	process *exec.Cmd
	url     string
	log     bytes.Buffer // to be read when it has exited
	exited  chan struct{}
}

// startPrometheus starts a Prometheus on a free port and waits until it is ready.
// It is stopped at the end of the test.
func startPrometheus(t *testing.T, binary, config string, flags ...string) *prometheus {
	t.Helper()
	for range 3 { // the port may be taken between finding and using it
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := free.Addr().String()
		free.Close()
		p := &prometheus{t: t, url: "http://" + address, exited: make(chan struct{})}
		p.process = exec.Command(binary, append([]string{"--config.file", config,
			"--storage.tsdb.path", t.TempDir(), "--web.listen-address", address}, flags...)...)
		p.process.Stdout, p.process.Stderr = &p.log, &p.log
		if err := p.process.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = p.process.Wait() // how it ends is of no interest
			close(p.exited)
		}()
		t.Cleanup(p.stop)
		if p.ready() {
			return p
		}
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// ready waits until Prometheus answers, and reports false if it exits before.
func (p *prometheus) ready() bool {
	p.t.Helper()
	for range 300 {
		select {
		case <-p.exited:
			return false
		case <-time.After(100 * time.Millisecond):
		}
		if code, _, err := p.get("/-/ready"); err == nil && code == http.StatusOK {
			return true
		}
	}
	p.t.Fatal("Prometheus is not ready after 30 s")
	return false
}

// stop tells Prometheus to stop, and makes it.
func (p *prometheus) stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-p.exited:
	case <-time.After(15 * time.Second):
		_ = p.process.Process.Kill() // it may have exited
		<-p.exited
		p.t.Error("Prometheus did not stop within 15 s of SIGTERM")
	}
	if p.t.Failed() {
		p.t.Logf("log of Prometheus:\n%s", p.log.String())
	}
}

// scraped waits for a scrape that succeeded and that began after the given time,
// and returns the time of its samples.
func (p *prometheus) scraped(after time.Time) string {
	p.t.Helper()
	// Prometheus moves the time of a scrape by some milliseconds, to regular steps.
	after = after.Add(100 * time.Millisecond)
	for range 300 {
		for _, sample := range p.query("timestamp(up) and up == 1", "") {
			if float64(sample.Value) > float64(after.UnixMilli())/1000 {
				return sample.Value.String()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatal("Prometheus has not scraped the daemon within 30 s")
	return ""
}

// check asks a query as of the given time. Prometheus must return the wanted
// series and no others.
func (p *prometheus) check(query, at string, want map[string]interval) {
	p.t.Helper()
	got := p.query(query, at)
	if len(got) != len(want) {
		p.t.Errorf("%s\nreturns %d series, want %d: %v", query, len(got), len(want), got)
	}
	for _, sample := range got {
		value := float64(sample.Value)
		bounds, wanted := want[sample.Metric.String()]
		if !wanted {
			p.t.Errorf("%s\nreturns the series %v, which is none of %v", query, sample.Metric, want)
		} else if !(bounds.low <= value && value <= bounds.high) { // NaN is never in them
			p.t.Errorf("%s\n%v is %v, want %v", query, sample.Metric, value, bounds)
		}
	}
}

// query asks for an instant vector, as of the given time or of now.
func (p *prometheus) query(query, at string) model.Vector {
	p.t.Helper()
	parameters := url.Values{"query": {query}}
	if at != "" {
		parameters.Set("time", at)
	}
	_, body, err := p.get("/api/v1/query?" + parameters.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	var reply struct {
		Status string
		Data   struct{ Result model.Vector }
	}
	if err := json.Unmarshal(body, &reply); err != nil || reply.Status != "success" {
		p.t.Fatalf("%s\nis answered with %s (%v)", query, body, err)
	}
	return reply.Data.Result
}

func (p *prometheus) get(path string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}
