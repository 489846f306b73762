package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// replayCmd sends recorded passes to a daemon, as a model server would.
type replayCmd struct {
	daemonFlags
	Model string `required:"" placeholder:"NAME" help:"The model whose policy decides."`

	Passes string        `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Layout record.Layout `default:"snk" placeholder:"LAYOUT" help:"Order of the axes: snk (passes, inputs, classes) or nsk (inputs, passes, classes). (${default})"`
	Limit  int           `placeholder:"N" help:"Send the first N inputs only."`

	Posterior string `placeholder:"NAME" help:"How the passes were sampled, as mc-dropout. The daemon counts and logs traffic that its policy was not calibrated for."`

	Settle bool `help:"Accept early decisions by the policy's rule, leave these inputs out of the passes that follow, and say at the end, on the standard error, how many passes that saved."`

	Unary    bool    `help:"Send every batch as one call with all its passes, in place of a stream of single passes."`
	Batch    int     `default:"32" help:"Inputs in a batch, whose passes are sent together. (${default})"`
	InFlight int     `default:"256" help:"Inputs under way at one time. (${default})"`
	Rate     float64 `placeholder:"R" help:"Inputs begun per second. Default: as fast as it goes."`

	Reconnect time.Duration `default:"30s" placeholder:"TIME" help:"How long to wait for a daemon that is gone to come back. 0 gives up at once. (${default})"`

	Detail  string `enum:"decision,vectors,full" default:"full" help:"What answers carry: ${enum}. (${default})"`
	Summary bool   `help:"Say throughput, latency and counts at the end, on the standard error."`
	Quiet   bool   `help:"Print no lines."`
}

// Help is the long text of ckd replay --help.
func (*replayCmd) Help() string {
	return `The lines are those of ckd decompose, in the order of the inputs. An input that the daemon refuses or leaves
without an answer gives a line with an error in its place: it has not been cleared.

    ckd replay --addr 127.0.0.1:8590 --model fetal-health --passes FILE.npy
    ckd replay --addr unix:/run/ckd.sock --model fetal-health --passes FILE.npy --rate 500 --summary --quiet

Exit codes: 0 every input was decided; 1 some were not, or the daemon, the stream or the file has a fault; 2 wrong
usage.`
}

// Validate refuses numbers that make no sense; kong calls it.
func (c *replayCmd) Validate() error {
	switch {
	case c.Unary && c.Settle:
		return errors.New("--settle: expected without --unary, whose calls have all passes")
	case c.Batch < 1:
		return fmt.Errorf("--batch %d: expected at least 1", c.Batch)
	case c.InFlight < 1:
		return fmt.Errorf("--in-flight %d: expected at least 1", c.InFlight)
	case c.Posterior != "" && !policy.IsName(c.Posterior):
		return fmt.Errorf("--posterior %q: expected %s", c.Posterior, policy.NameForm)
	case c.Limit < 0:
		return fmt.Errorf("--limit %d: expected at least 1, or 0 for all", c.Limit)
	case c.Reconnect < 0:
		return fmt.Errorf("--reconnect %v: expected 0 or more", c.Reconnect)
	case !(c.Rate >= 0) || math.IsInf(c.Rate, 1):
		return fmt.Errorf("--rate %v: expected a finite number above 0, or 0 for no limit", c.Rate)
	}
	return nil
}

// reconnect returns the setting in the client's form.
func (c *replayCmd) reconnect() client.Reconnect {
	return client.Reconnect{Disabled: c.Reconnect == 0, Limit: c.Reconnect}
}

// Run sends the recording, and prints the answers in its order.
func (c *replayCmd) Run(ctx *cmdContext) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()

	model, err := daemon.Model(ctx.Ctx, c.Model)
	if err != nil {
		return fmt.Errorf("model %q of the daemon at %s: %s", c.Model, c.Addr, replay.StatusText(err))
	}
	passes, err := c.read(ctx, model)
	if err != nil {
		return err
	}
	inputs := passes.N
	if c.Limit > 0 {
		inputs = min(inputs, c.Limit)
	}
	loop := &replay.Loop{Inputs: inputs, InFlight: c.InFlight, Batch: min(c.Batch, c.InFlight)}
	detail := ckdv1.Detail(ckdv1.Detail_value["DETAIL_"+strings.ToUpper(c.Detail)])
	streamErr := func() error { return nil }
	stream := &replay.Stream{Passes: passes}
	stopsEarly := false
	if c.Unary {
		loop.Send = replay.Unary(daemon, passes, client.Batch{
			Model: c.Model, Posterior: c.Posterior, Detail: detail, Reconnect: c.reconnect(),
		})
	} else {
		session, err := daemon.Session(ctx.Ctx, client.SessionConfig{
			Model: c.Model, Classes: model.GetClasses(), Posterior: c.Posterior, Passes: passes.S, Detail: detail,
			InFlight: c.InFlight, Reconnect: c.reconnect(), AcceptSettled: c.Settle,
		})
		if err != nil {
			return fmt.Errorf("session for model %q: %s", c.Model, replay.StatusText(err))
		}
		defer session.Close() // its error is that of streamErr
		loop.Batch = min(loop.Batch, session.Window())
		stream.Session = session
		loop.Send = stream.Send
		stopsEarly = session.Info().GetSettles()
		streamErr = session.Err
	}
	loop.Pace = replay.Pacer(c.Rate, loop.Batch, streamErr)

	out := replay.NewOutput(ctx.Stdout, detail, c.Quiet)
	started := time.Now()
	err = replay.Run(ctx.Ctx, loop, out.Add)
	if c.Summary {
		out.Summary(ctx.Stderr, time.Since(started))
	}
	if c.Settle {
		out.Saving(ctx.Stderr, stopsEarly, passes.S, stream.Sent())
	}
	switch {
	case ctx.Ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d of %d inputs", out.Answered(), inputs)
	case err != nil:
		return err
	}
	err = out.Err(inputs)
	if broken := streamErr(); broken != nil {
		fmt.Fprintf(ctx.Stderr, "ckd: the stream broke: %s\n", replay.StatusText(broken))
		err = cmp.Or(err, fail(exitFault, nil))
	}
	return err
}

// read reads the passes as the model's rows, and prints how it read them.
func (c *replayCmd) read(ctx *cmdContext, model *ckdv1.Model) (*record.Passes, error) {
	passes, err := record.ReadPasses(c.Passes, record.Options{
		Layout:         c.Layout,
		Concentrations: model.GetKind() == ckdv1.Kind_KIND_DIRICHLET,
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(ctx.Stderr, "ckd: %s: %s\n", c.Passes, passes.Note())
	if passes.Float64 != nil {
		fmt.Fprintf(ctx.Stderr, "ckd: %s: float64 is narrowed to float32, which is what the daemon takes\n", c.Passes)
	}
	kind := map[ckdv1.Kind]policy.Kind{ckdv1.Kind_KIND_PROBABILITIES: policy.Probabilities, ckdv1.Kind_KIND_LOGITS: policy.Logits}
	if err := checkRows(passes, kind[model.GetKind()], model.GetSumTolerance()); err != nil {
		return nil, err
	}
	if passes.K != len(model.GetClasses()) {
		return nil, fmt.Errorf("%s has %d classes, but model %s of the daemon has %d: %s", c.Passes, passes.K, c.Model,
			len(model.GetClasses()), firstNames(model.GetClasses()))
	}
	rows := map[ckdv1.Kind]decomp.Kind{ckdv1.Kind_KIND_LOGITS: decomp.Logits, ckdv1.Kind_KIND_DIRICHLET: decomp.Dirichlet}
	warnOfPasses(ctx, passes, rows[model.GetKind()], model.GetSumTolerance())
	return passes, nil
}
