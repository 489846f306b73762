package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	daemonRounds = 7
	daemonTurn   = 500 * time.Millisecond
)

// These constants number the servers of a comparison.
const (
	atCKD = iota
	atCKDAgain
	atSink
	atIdiomatic
	atIntercepted
	servers // how many there are
)

// columns are the servers that the table compares ckd with, in its order.
var columns = []int{atSink, atIdiomatic, atIntercepted, atCKDAgain}

// compareDaemons prints the table of daemons.
func (o setting) compareDaemons(ctx context.Context) error {
	fmt.Printf("### Daemon\n\n`ckd serve` with everything on, over a unix socket, one stream or calls, with %d groups "+
		"under way at a time. The client has every message made beforehand. The sink answers as many bytes as ckd without "+
		"looking. Idiomatic does what ckd does in the common way, without metrics; in full it has them, one Observe for each C_k and skewness, and the metrics, request id, "+
		"log line and recovery of calls that ckd has, from the usual middleware. Ratios of throughput, and of the "+
		"server's CPU time for a group of N inputs.\n\n", outstanding)
	header("sent", "shape", "inputs/s", "ckd / sink", "**ckd / idiomatic**", "**ckd / in full**", "ckd / itself",
		"CPU, us", "CPU: ckd / sink", "**CPU: ckd / idiomatic**", "**CPU: ckd / in full**", "CPU: ckd / itself")
	all, stop, err := o.startAll(ctx)
	defer stop()
	if err != nil {
		return err
	}
	for _, m := range []mode{batched, passByPass, unary} {
		of, n, turn := shapes, daemonRounds, daemonTurn
		if m != batched {
			of = []shape{shapes[0], shapes[1], shapes[4]}
		}
		if o.quick {
			of, n, turn = shapes[:1], 1, 50*time.Millisecond
		}
		for _, s := range of {
			progress("daemon: %s, %s", s, m)
			r, err := compareServers(ctx, s, m, n, turn, all)
			if err != nil {
				return err
			}
			cells := []string{string(m), s.String(), figure(r.rate * float64(s.inputs))}
			for _, at := range columns {
				cells = append(cells, figure(r.rates[at]))
			}
			cells = append(cells, figure(r.cpu*1e6))
			for _, at := range columns {
				cells = append(cells, figure(r.cpus[at]))
			}
			row(cells...)
		}
	}
	fmt.Println()
	return nil
}

// startAll starts all servers.
func (o setting) startAll(ctx context.Context) (all []*process, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			s.stop()
		}
	}
	for _, name := range []string{"ckd", "ckd-again", kindSink, kindIdiomatic, kindIntercepted} {
		begin := o.startServer
		if len(all) < atSink {
			begin = o.startCKD
		}
		s, err := begin(ctx, name)
		if err != nil {
			return all, stop, err
		}
		all = append(all, s)
	}
	return all, stop, nil
}

// comparison holds the figures of one case: medians, and ratios that are medians over the rounds.
type comparison struct {
	rate, cpu float64 // of ckd: groups a second, CPU seconds a group

	// rates and cpus are the throughput and the server CPU of ckd divided by those of each server.
	rates, cpus [servers]float64
}

// compareServers compares the servers on one case.
func compareServers(ctx context.Context, s shape, m mode, n int, turn time.Duration, all []*process) (c comparison, err error) {
	p, err := newPayload(s, m, outstanding)
	if err != nil {
		return c, err
	}
	turns := make([]func() (sample, error), len(all))
	for at, server := range all {
		conn, err := dial(server)
		if err != nil {
			return c, err
		}
		defer conn.Close()
		l := &load{server: server, conn: conn, payload: p, lengths: make([]int, len(p.groups)), blind: at == atSink}
		turns[at] = func() (sample, error) { return l.drive(ctx, turn) }
		if at == atCKD { // its replies tell the sink's length
			if _, err := l.drive(ctx, turn); err != nil {
				return c, err
			}
			ctx = metadata.AppendToOutgoingContext(ctx, keyReplyBytes, strconv.Itoa(l.lengths[0]),
				keyMessages, strconv.Itoa(len(p.groups[0].messages)))
		}
	}
	samples, err := rounds(ctx, n, turns...)
	if err != nil {
		return c, err
	}
	var rates, cpus [servers][]float64
	for at := range servers {
		for _, one := range samples[at] {
			rates[at], cpus[at] = append(rates[at], one.rate), append(cpus[at], one.cpu)
		}
		c.rates[at], c.cpus[at] = ratio(rates[atCKD], rates[at]), ratio(cpus[atCKD], cpus[at])
	}
	c.rate, c.cpu = median(rates[atCKD]), median(cpus[atCKD])
	return c, nil
}
