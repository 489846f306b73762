package main

import (
	"context"
	"fmt"
	"time"
)

// daemonOptions are what a process that compares daemons is told.
type daemonOptions struct {
	Binary, Folder string
	Rounds         int
	Turn           time.Duration
	Cases          []daemonCase
}

// daemonCase is one row: a shape, and how it is sent.
type daemonCase struct {
	Passes, Classes, Inputs int
	Mode                    mode
}

func (c daemonCase) shape() shape { return shape{c.Passes, c.Classes, c.Inputs} }

// daemonCases are all rows.
func daemonCases() []daemonCase {
	var cases []daemonCase
	add := func(m mode, of ...shape) {
		for _, s := range of {
			cases = append(cases, daemonCase{s.passes, s.classes, s.inputs, m})
		}
	}
	add(batched, shapes...)
	add(passByPass, shape{30, 4, 1}, shape{30, 4, 64}, shape{30, 1000, 1})
	add(unary, shape{30, 4, 1}, shape{30, 4, 64}, shape{30, 1000, 1})
	return cases
}

// The servers of a comparison, by their place.
const (
	atCKD = iota
	atCKDAgain
	atSink
	atSinkAgain
	atEcho
	atStandard
	atIdiomatic
	atObserving
	atCKDWithoutMetrics
)

// daemonRow is what was measured of one case. Figures are medians, ratios medians over the rounds.
type daemonRow struct {
	daemonCase
	Bytes, ReplyBytes int     // of a group
	Messages, CPU     float64 // of ckd: groups a second, CPU seconds a group
	SinkCPU           float64

	// Throughput of ckd over that of the others.
	OverEcho, OverSink, OverStandard, OverIdiomatic, OverObserving float64
	// Server CPU of ckd over that of the others; with metrics over without them, 0 where they cannot be switched off.
	CPUOverSink, CPUOverIdiomatic, CPUOverWithoutMetrics float64
	// How busy the client was: at 1, it is what limits the throughput.
	ClientBusy, SinkClientBusy float64
	// The same things against themselves.
	SameCKD, SameCKDCPU, SameSink float64
}

func (o daemonOptions) measureAll(ctx context.Context) ([]daemonRow, error) {
	servers, stop, err := o.start(ctx)
	defer stop()
	if err != nil {
		return nil, err
	}
	var rows []daemonRow
	for _, c := range o.Cases {
		progress("daemon: %s, %s", c.shape(), c.Mode)
		row, err := o.measure(ctx, c, servers)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// start starts all servers.
func (o daemonOptions) start(ctx context.Context) (servers []*process, stop func(), err error) {
	stop = func() {
		for _, s := range servers {
			s.stop()
		}
	}
	policy, err := writePolicy(o.Folder, []int{4, 10, 100, 1000})
	if err != nil {
		return nil, stop, err
	}
	for _, name := range []string{"ckd", "ckd-again"} {
		s, err := startCKD(ctx, o.Folder, o.Binary, policy, name)
		if err != nil {
			return servers, stop, err
		}
		servers = append(servers, s)
	}
	for _, kind := range []string{kindSink, kindSink, kindEcho, kindStandard, kindIdiomatic, kindObserving} {
		s, err := startServer(ctx, o.Folder, kind, fmt.Sprintf("%s-%d", kind, len(servers)))
		if err != nil {
			return servers, stop, err
		}
		servers = append(servers, s)
	}
	s, err := startCKD(ctx, o.Folder, withoutMetrics(o.Binary), policy, "ckd-without-metrics")
	if err != nil {
		return servers, stop, err
	}
	return append(servers, s), stop, nil
}

// measure compares the servers on one case.
func (o daemonOptions) measure(ctx context.Context, c daemonCase, servers []*process) (daemonRow, error) {
	s := c.shape()
	row := daemonRow{daemonCase: c}
	// One payload for the servers that take it as bytes, and one for the generated types.
	inBytes, repeated := newPayload(s, c.Mode, window(s), true), newPayload(s, c.Mode, window(s), false)
	for _, m := range inBytes.groups[0].messages {
		row.Bytes += len(m)
	}
	turns := make([]func() (sample, error), len(servers))
	var counts countChecks
	for at, server := range servers {
		p, replies := inBytes, 1
		switch at {
		case atStandard, atIdiomatic, atObserving:
			p = repeated
		}
		if at == atEcho || at == atStandard {
			replies = len(p.groups[0].messages)
		}
		l, err := newLoad(server, p, 1, replies)
		if err != nil {
			return row, err
		}
		defer l.close()
		if at == atCKD || at == atCKDAgain || at == atCKDWithoutMetrics {
			if err := counts.add(ctx, l, at == atCKDWithoutMetrics); err != nil {
				return row, err
			}
		}
		switch at {
		case atCKD, atCKDAgain, atCKDWithoutMetrics, atIdiomatic, atObserving:
			reply, err := l.verify(ctx)
			if err != nil {
				return row, err
			}
			if at == atCKD {
				row.ReplyBytes = len(reply)
			}
		case atSink, atSinkAgain: // after ckd, whose reply is known
			if err := tell(ctx, l, len(p.groups[0].messages), row.ReplyBytes); err != nil {
				return row, err
			}
		}
		turns[at] = func() (sample, error) { return l.drive(ctx, o.Turn) }
	}
	m, err := rounds(ctx, o.Rounds, turns...)
	if err != nil {
		return row, err
	}
	row.fill(m)
	return row, counts.check(ctx)
}

func (r *daemonRow) fill(m [][]sample) {
	rate := func(at int) []float64 { return of(m[at], sample.rate) }
	cpu := func(at int) []float64 { return of(m[at], sample.cpu) }
	r.Messages, r.CPU, r.SinkCPU = median(rate(atCKD)), median(cpu(atCKD)), median(cpu(atSink))
	r.ClientBusy, r.SinkClientBusy = median(of(m[atCKD], sample.busy)), median(of(m[atSink], sample.busy))
	r.OverEcho = ratio(rate(atCKD), rate(atEcho))
	r.OverSink = ratio(rate(atCKD), rate(atSink))
	r.OverStandard = ratio(rate(atCKD), rate(atStandard))
	r.OverIdiomatic = ratio(rate(atCKD), rate(atIdiomatic))
	r.OverObserving = ratio(rate(atCKD), rate(atObserving))
	r.CPUOverSink = ratio(cpu(atCKD), cpu(atSink))
	r.CPUOverIdiomatic = ratio(cpu(atCKD), cpu(atIdiomatic))
	r.CPUOverWithoutMetrics = ratio(cpu(atCKD), cpu(atCKDWithoutMetrics))
	r.SameCKD, r.SameCKDCPU = ratio(rate(atCKD), rate(atCKDAgain)), ratio(cpu(atCKD), cpu(atCKDAgain))
	r.SameSink = ratio(rate(atSink), rate(atSinkAgain))
}
