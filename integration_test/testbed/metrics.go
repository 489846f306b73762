package testbed

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Metrics holds the values of /metrics by series, as its text names them.
type Metrics map[string]float64

// Metrics scrapes the daemon, once those who scrape it before leave room.
func (d *Daemon) Metrics() Metrics {
	d.t.Helper()
	var text string
	Eventually(d.t, "/metrics answers", func() bool {
		var code int
		code, text, _ = d.Get("/metrics")
		return code != http.StatusServiceUnavailable
	})
	found := Metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			d.t.Fatalf("/metrics: %s: %v", line, err)
		}
		found[line[:space]] = value
	}
	return found
}

// Sum adds up the series of a metric that have the given pairs of label and value.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
	var wanted []string
	for i := 0; i < len(labels); i += 2 {
		wanted = append(wanted, labels[i]+"="+strconv.Quote(labels[i+1]))
	}
	for series, value := range m {
		metric, rest, _ := strings.Cut(series, "{")
		pairs := strings.Split(strings.TrimSuffix(rest, "}"), ",")
		if metric == name && !slices.ContainsFunc(wanted, func(pair string) bool { return !slices.Contains(pairs, pair) }) {
			sum += value
		}
	}
	return sum
}
