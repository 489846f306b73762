package main

import (
	"context"
	"fmt"
	"time"
)

// comparison holds what a process that compares servers needs.
type comparison struct {
	Binary, Folder string
	Rounds         int
	Turn           time.Duration
	Cases          []daemonCase
}

// daemonCase describes a row: a shape, and how it is sent.
type daemonCase struct {
	Passes, Classes, Inputs int
	Mode                    mode
}

func (c daemonCase) shape() shape { return shape{c.Passes, c.Classes, c.Inputs} }

// daemonCases returns the cases of all rows.
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

// These constants number the servers of a comparison.
const (
	atCKD = iota
	atCKDAgain
	atSink
	atSinkAgain
	atEcho
	atIdiomatic
	atObserving
	atIntercepted
	servers // how many there are
)

// daemonRow holds the figures of one case: medians, and ratios that are medians over the rounds.
type daemonRow struct {
	daemonCase
	Bytes, ReplyBytes int     // size of a group and of its replies
	Messages, CPU     float64 // figures of ckd: groups a second, CPU seconds a group
	SinkCPU           float64

	// Over and CPUOver are the throughput and the server CPU of ckd divided by those of each server.
	Over, CPUOver [servers]float64
	// Share of its core that the client used: at 1, the client limits the throughput.
	ClientBusy, SinkClientBusy float64
	// SameSink is the throughput of a sink divided by that of another one.
	SameSink float64
}

func (o comparison) measureThroughput(ctx context.Context) ([]daemonRow, error) {
	all, stop, err := o.start(ctx)
	defer stop()
	if err != nil {
		return nil, err
	}
	var rows []daemonRow
	for _, c := range o.Cases {
		progress("daemon: %s, %s", c.shape(), c.Mode)
		row, err := o.measureRow(ctx, c, all)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// start starts all servers.
func (o comparison) start(ctx context.Context) (all []*process, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			s.stop()
		}
	}
	policy, err := writePolicy(o.Folder, 4, 10, 100, 1000)
	if err != nil {
		return nil, stop, err
	}
	for _, name := range []string{"ckd", "ckd-again"} {
		s, err := startCKD(ctx, o.Folder, o.Binary, policy, name)
		if err != nil {
			return all, stop, err
		}
		all = append(all, s)
	}
	for _, kind := range []string{kindSink, kindSink, kindEcho, kindIdiomatic, kindObserving, kindIntercepted} {
		s, err := startServer(ctx, o.Folder, kind, fmt.Sprintf("%s-%d", kind, len(all)))
		if err != nil {
			return all, stop, err
		}
		all = append(all, s)
	}
	return all, stop, nil
}

// measureRow compares the servers on one case.
func (o comparison) measureRow(ctx context.Context, c daemonCase, all []*process) (daemonRow, error) {
	s := c.shape()
	row := daemonRow{daemonCase: c}
	// One payload for the servers that take it as bytes, and one for the generated types.
	inBytes, err := newPayload(s, c.Mode, window(s), true)
	if err != nil {
		return row, err
	}
	repeated, err := newPayload(s, c.Mode, window(s), false)
	if err != nil {
		return row, err
	}
	for _, m := range inBytes.groups[0].messages {
		row.Bytes += len(m)
	}
	turns := make([]func() (sample, error), len(all))
	for at, server := range all {
		p, replies, decides := inBytes, 1, true
		switch at {
		case atIdiomatic, atObserving, atIntercepted:
			p = repeated
		case atEcho:
			replies, decides = len(p.groups[0].messages), false
		case atSink, atSinkAgain:
			decides = false
		}
		l, err := newLoad(server, p, replies, decides)
		if err != nil {
			return row, err
		}
		defer l.close()
		switch at {
		case atCKD:
			if _, err := l.drive(ctx, 0); err != nil {
				return row, err
			}
			row.ReplyBytes = l.lengths[0]
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
	return row, nil
}

func (r *daemonRow) fill(m [][]sample) {
	rate := func(at int) []float64 { return of(m[at], sample.rate) }
	cpu := func(at int) []float64 { return of(m[at], sample.cpu) }
	r.Messages, r.CPU, r.SinkCPU = median(rate(atCKD)), median(cpu(atCKD)), median(cpu(atSink))
	r.ClientBusy, r.SinkClientBusy = median(of(m[atCKD], sample.busy)), median(of(m[atSink], sample.busy))
	for at := range servers {
		r.Over[at], r.CPUOver[at] = ratio(rate(atCKD), rate(at)), ratio(cpu(atCKD), cpu(at))
	}
	r.SameSink = ratio(rate(atSink), rate(atSinkAgain))
}
