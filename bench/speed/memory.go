package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/config"
)

// streamsPerConnection is how many streams share a connection.
const streamsPerConnection = 100

// measureMemory prints the table of memory.
func (o setting) measureMemory(ctx context.Context) error {
	defaults, err := config.Default()
	if err != nil {
		return err
	}
	streams, settle := defaults.MaxStreams, time.Second
	if o.quick {
		streams, settle = 50, 50*time.Millisecond
	}
	fmt.Printf("### Memory of open streams\n\nResident memory of a fresh `ckd serve`, %d streams a connection.\n\n", streamsPerConnection)
	header("", "streams", "RSS, MB", "KB a stream")
	none := 0.0
	for _, load := range []struct {
		what    string
		streams int
		classes int // of an open input on each; 0 for none
	}{
		{"no stream", 0, 0}, {"idle streams", streams, 0},
		{"one open input each, K=4", streams, 4}, {"one open input each, K=1000", streams, 1000},
	} {
		progress("memory: %s", load.what)
		bytes, err := o.residentWith(ctx, load.streams, load.classes, settle)
		if err != nil {
			return err
		}
		each := ""
		if load.streams == 0 {
			none = bytes
		} else {
			each = figure((bytes - none) / float64(load.streams) / 1e3)
		}
		row(load.what, fmt.Sprint(load.streams), figure(bytes/1e6), each)
	}
	fmt.Println()
	return nil
}

// residentWith starts ckd, opens streams and on each, of some classes, an input with one pass. It
// returns ckd's resident memory after a while.
func (o setting) residentWith(ctx context.Context, streams, classes int, settle time.Duration) (float64, error) {
	ckd, err := o.startCKD(ctx, "ckd")
	if err != nil {
		return 0, err
	}
	defer ckd.stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel() // ends the streams
	s := shape{30, max(classes, 4), 1}
	p, err := newPayload(s, passByPass, 1)
	if err != nil {
		return 0, err
	}
	var c *grpc.ClientConn
	for i := range streams {
		if i%streamsPerConnection == 0 {
			if c, err = dial(ckd); err != nil {
				return 0, err
			}
			defer c.Close()
		}
		stream, err := openStream(ctx, c, s)
		if err == nil && classes > 0 {
			err = stream.SendMsg(p.groups[0].messages[0])
		}
		if err != nil {
			return 0, err
		}
	}
	wait(ctx, settle)
	return ckd.residentBytes()
}
