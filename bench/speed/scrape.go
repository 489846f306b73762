package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// decisionsMetric counts the inputs that ckd decided.
const decisionsMetric = "ckd_decisions_total{"

// countChecks compares what ckd's metrics counted with what it answered.
type countChecks []countCheck

type countCheck struct {
	load   *load
	before float64
	off    bool // metrics are switched off
}

// add notes the counts before anything is sent.
func (c *countChecks) add(ctx context.Context, l *load, off bool) error {
	before, err := l.server.decided(ctx)
	*c = append(*c, countCheck{l, before, off})
	return err
}

// check returns an error if the counts do not match the answers.
func (c countChecks) check(ctx context.Context) error {
	for _, of := range c {
		after, err := of.load.server.decided(ctx)
		if err != nil {
			return err
		}
		want := float64(of.load.answered.Load() * int64(of.load.payload.shape.inputs))
		if of.off {
			want = 0
		}
		if got := after - of.before; got != want {
			return fmt.Errorf("%s counted %v decisions, expected %v", of.load.server.name, got, want)
		}
	}
	return nil
}

// decided returns how many inputs ckd's metrics say that it decided.
func (p *process) decided(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url, err := p.adminURL()
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Cache-Control", "no-cache") // not what another scrape was told before
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	total := 0.0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), decisionsMetric) {
			continue
		}
		_, value, _ := strings.Cut(lines.Text(), "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		total += n
	}
	return total, lines.Err()
}

// adminURL returns the address of the metrics from ckd's log. The line may take a moment to appear.
func (p *process) adminURL() (string, error) {
	for range 100 {
		log, err := os.ReadFile(p.log)
		if err != nil {
			return "", err
		}
		for text := range bytes.Lines(log) {
			var line struct{ Msg, For, Address string }
			if json.Unmarshal(text, &line) == nil && line.Msg == "listening" && line.For == "admin" {
				return line.Address, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", fmt.Errorf("%s does not say where it serves its metrics:\n%s", p.name, p.said())
}
