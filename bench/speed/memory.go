package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// memoryOptions holds what a process that measures memory needs.
type memoryOptions struct {
	Binary, Folder string
	Streams        int           // at most what ckd allows by default
	Settle         time.Duration // before memory is read
}

// memoryRow holds the resident memory of a fresh ckd with open streams.
type memoryRow struct {
	What    string
	Streams int
	Bytes   int64   // resident
	Each    float64 // bytes a stream over a ckd without any
}

// streamsPerConnection is how many streams share a connection.
const streamsPerConnection = 100

func (o memoryOptions) measureAll(ctx context.Context) ([]memoryRow, error) {
	policy, err := writePolicy(o.Folder, 4, 1000)
	if err != nil {
		return nil, err
	}
	var rows []memoryRow
	for _, of := range []struct {
		what    string
		streams int
		classes int
		inputs  bool
	}{
		{"no stream", 0, 4, false},
		{"idle streams", o.Streams, 4, false},
		{"one open input each, K=4", o.Streams, 4, true},
		{"one open input each, K=1000", o.Streams, 1000, true},
	} {
		progress("memory: %s", of.what)
		bytes, err := o.measure(ctx, policy, of.streams, of.classes, of.inputs)
		if err != nil {
			return nil, err
		}
		row := memoryRow{What: of.what, Streams: of.streams, Bytes: bytes}
		if of.streams > 0 {
			row.Each = float64(bytes-rows[0].Bytes) / float64(of.streams)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure starts ckd, opens streams and, on each, an input with one pass.
func (o memoryOptions) measure(ctx context.Context, policy string, streams, classes int, inputs bool) (int64, error) {
	ckd, err := startCKD(ctx, o.Folder, o.Binary, policy, "ckd")
	if err != nil {
		return 0, err
	}
	defer ckd.stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel() // ends the streams
	s := shape{30, classes, 1}
	p, err := newPayload(s, passByPass, 1, true)
	if err != nil {
		return 0, err
	}
	var c *grpc.ClientConn
	for i := range streams {
		if i%streamsPerConnection == 0 {
			if c, err = dial(ckd.socket); err != nil {
				return 0, err
			}
			defer c.Close()
		}
		stream, err := openStream(ctx, c, s)
		if err != nil {
			return 0, err
		}
		if inputs {
			if err := stream.SendMsg(newFrame(p.groups[0].messages[0])); err != nil {
				return 0, err
			}
		}
	}
	wait(ctx, o.Settle)
	return residentBytes(ckd.pid())
}
