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
	for _, value := range m.with(name, labels) {
		sum += value
	}
	return sum
}

// Value returns the one series of a metric that has the given pairs of label and value. It reports false
// if there is none, or more than one.
func (m Metrics) Value(name string, labels ...string) (float64, bool) {
	if value, found := m[series(name, labels)]; found {
		return value, true
	}
	found := m.with(name, labels)
	if len(found) != 1 {
		return 0, false
	}
	return found[0], true
}

// series returns what the text of /metrics calls the series that has these pairs of label and value, and
// no others.
func series(name string, labels []string) string {
	if len(labels) == 0 {
		return name
	}
	return name + "{" + strings.Join(slices.Sorted(slices.Values(pairs(labels))), ",") + "}"
}

func pairs(labels []string) (all []string) {
	for i := 0; i < len(labels); i += 2 {
		all = append(all, labels[i]+"="+strconv.Quote(labels[i+1]))
	}
	return all
}

// Count returns the number of series of a metric.
func (m Metrics) Count(name string) int { return len(m.with(name, nil)) }

// with returns the values of the series of a metric that have the given pairs of label and value.
func (m Metrics) with(name string, labels []string) (values []float64) {
	wanted := pairs(labels)
	for series, value := range m {
		metric, rest, _ := strings.Cut(series, "{")
		if metric != name {
			continue
		}
		has := strings.Split(strings.TrimSuffix(rest, "}"), ",")
		if !slices.ContainsFunc(wanted, func(pair string) bool { return !slices.Contains(has, pair) }) {
			values = append(values, value)
		}
	}
	return values
}
