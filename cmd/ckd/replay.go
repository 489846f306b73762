package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// replayCmd sends recorded passes to a daemon, as a model server would.
type replayCmd struct {
	Addr     string `required:"" placeholder:"ADDR" help:"Address of the daemon: host:port or unix:PATH."`
	Insecure bool   `help:"Allow plaintext to another machine. To this one it is allowed anyway."`
	TLS      bool   `name:"tls" help:"Use TLS, with the authorities that this system trusts unless --tls-ca names others."`
	TLSCA    string `name:"tls-ca" placeholder:"FILE" help:"PEM file of the authorities that the daemon's certificate must be from. Implies --tls."`
	TLSCert  string `name:"tls-cert" placeholder:"FILE" help:"PEM file of a certificate to show. Implies --tls."`
	TLSKey   string `name:"tls-key" placeholder:"FILE" help:"PEM file of its key."`
	Token    string `name:"token-file" placeholder:"FILE" help:"File with the bearer token to present."`
	Model    string `required:"" placeholder:"NAME" help:"The model whose policy decides."`

	Passes string        `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Layout record.Layout `default:"snk" placeholder:"LAYOUT" help:"Order of the axes: snk (passes, inputs, classes) or nsk (inputs, passes, classes). (${default})"`
	Limit  int           `placeholder:"N" help:"Send the first N inputs only."`

	Posterior string `placeholder:"NAME" help:"How the passes were sampled, as mc-dropout. The daemon counts and logs traffic that its policy was not calibrated for."`

	Settle bool `help:"Take answers before the last pass, of inputs whose decision is settled by the policy's rule, leave these out of the passes that follow, and say at the end how many passes that saved, on the standard error."`

	Unary    bool    `help:"Send every batch as one call with all its passes, in place of a stream of single passes."`
	Batch    int     `default:"32" help:"Inputs in a batch, whose passes are sent together. (${default})"`
	InFlight int     `default:"256" help:"Inputs under way at one time. (${default})"`
	Rate     float64 `placeholder:"R" help:"Inputs begun per second. Default: as fast as it goes."`

	Reconnect time.Duration `default:"30s" placeholder:"TIME" help:"How long inputs may wait for a daemon that is gone to come back; then they fail. 0 gives up at once. (${default})"`

	Detail  string `enum:"decision,vectors,full" default:"full" help:"What answers carry: ${enum}. (${default})"`
	Summary bool   `help:"At the end, say throughput, latency and counts on the standard error."`
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

// reconnect is the setting as the client takes it.
func (c *replayCmd) reconnect() client.Reconnect {
	return client.Reconnect{Disabled: c.Reconnect == 0, Limit: c.Reconnect}
}

// Run sends the recording, and prints the answers in its order.
func (c *replayCmd) Run(ctx *cmdContext) error {
	var options []client.Option
	if c.Insecure {
		options = append(options, client.WithInsecure())
	}
	if c.TLS || c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != "" {
		options = append(options, client.WithTLS(client.TLSFiles{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey}))
	}
	if c.Token != "" {
		options = append(options, client.WithTokenFile(c.Token))
	}
	daemon, err := client.Dial(c.Addr, options...)
	if err != nil {
		return err
	}
	defer daemon.Close()

	model, err := daemon.Model(ctx.Ctx, c.Model)
	if err != nil {
		return fmt.Errorf("model %q of the daemon at %s: %s", c.Model, c.Addr, statusText(err))
	}
	passes, err := c.read(ctx, model)
	if err != nil {
		return err
	}
	inputs := passes.N
	if c.Limit > 0 {
		inputs = min(inputs, c.Limit)
	}
	p := &playback{inputs: inputs, inFlight: c.InFlight, batch: min(c.Batch, c.InFlight)}
	detail := ckdv1.Detail(ckdv1.Detail_value["DETAIL_"+strings.ToUpper(c.Detail)])
	streamErr := func() error { return nil }
	sent := &passSender{passes: passes}
	settles := false
	if c.Unary {
		p.send = unarySender(daemon, passes, client.Batch{
			Model: c.Model, Posterior: c.Posterior, Detail: detail, Reconnect: c.reconnect(),
		})
	} else {
		session, err := daemon.Session(ctx.Ctx, client.SessionConfig{
			Model: c.Model, Classes: model.GetClasses(), Posterior: c.Posterior, Passes: passes.S, Detail: detail,
			InFlight: c.InFlight, Reconnect: c.reconnect(), AcceptSettled: c.Settle,
		})
		if err != nil {
			return fmt.Errorf("session for model %q: %s", c.Model, statusText(err))
		}
		defer session.Close() // its error is that of streamErr
		p.batch = min(p.batch, session.Window())
		sent.session = session
		p.send = sent.send
		settles = session.Info().GetSettles()
		streamErr = session.Err
	}
	p.pace = pacer(c.Rate, p.batch, streamErr)

	out := &replayOutput{w: bufio.NewWriter(ctx.Stdout), detail: detail, quiet: c.Quiet}
	started := time.Now()
	err = replay(ctx.Ctx, p, out.take)
	if c.Summary {
		out.summary(ctx.Stderr, time.Since(started))
	}
	if c.Settle {
		out.saving(ctx.Stderr, settles, passes.S, int(sent.count.Load()))
	}
	switch {
	case ctx.Ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d of %d inputs", out.decided+out.failed.count, inputs)
	case err != nil:
		return err
	}
	err = out.failed.err(inputs, "have no decision")
	if broken := streamErr(); broken != nil {
		fmt.Fprintf(ctx.Stderr, "ckd: the stream broke: %s\n", statusText(broken))
		err = cmp.Or(err, fail(exitFault, nil))
	}
	return err
}

// read the passes as the model's rows, and say how they were read.
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
	if passes.K != len(model.GetClasses()) {
		return nil, fmt.Errorf("%s has %d classes, but model %s of the daemon has %d: %s", c.Passes, passes.K, c.Model,
			len(model.GetClasses()), firstNames(model.GetClasses()))
	}
	if model.GetKind() == ckdv1.Kind_KIND_PROBABILITIES {
		if err := passes.CheckRows(model.GetSumTolerance()); err != nil {
			return nil, err
		}
	}
	return passes, nil
}

// playback is what replay needs to know.
type playback struct {
	inputs   int
	batch    int // inputs that are sent together
	inFlight int // inputs under way at one time, at least batch
	// pace waits until n inputs may begin. An error is that of the context.
	pace func(ctx context.Context, n int) error
	// send sends inputs from up to to, and returns an answer for each, in order.
	// It is called by many goroutines at once.
	send func(ctx context.Context, from, to int) []answer
}

// answer is what came back for an input.
type answer struct {
	index int
	client.Result
	// latency from the moment its first pass was sent.
	latency time.Duration
}

// replay sends batch after batch, several at a time, and hands over the answers
// in the order of the inputs. It ends early when ctx does or take fails.
func replay(ctx context.Context, p *playback, take func([]answer) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// The batches under way, in order: the one whose answers are awaited is out of
	// the channel already.
	underway := make(chan chan []answer, max(p.inFlight/p.batch, 1)-1)
	go func() {
		defer close(underway)
		for from := 0; from < p.inputs; from += p.batch {
			to := min(from+p.batch, p.inputs)
			if err := p.pace(ctx, to-from); err != nil {
				cancel(err)
				return
			}
			answers := make(chan []answer, 1)
			select {
			case underway <- answers:
			case <-ctx.Done():
				return
			}
			go func() { answers <- p.send(ctx, from, to) }()
		}
	}()
	for answers := range underway {
		batch := <-answers
		if ctx.Err() != nil {
			break // what came back is only that
		}
		if err := take(batch); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// pacer lets so many inputs begin per second, 0 for no limit, and all of them at
// once when the stream is broken: they are only told so.
func pacer(inputsPerSecond float64, batch int, broken func() error) func(context.Context, int) error {
	limit := rate.Inf
	if inputsPerSecond > 0 {
		limit = rate.Limit(inputsPerSecond)
	}
	// A tenth of a second that was slept too long can be caught up; the beginning
	// is no such time.
	burst := batch
	if inputsPerSecond > 0 {
		burst = max(batch, int(inputsPerSecond/10))
	}
	limiter := rate.NewLimiter(limit, burst)
	limiter.AllowN(time.Now(), burst-batch)
	return func(ctx context.Context, n int) error {
		if broken() != nil {
			return ctx.Err()
		}
		return limiter.WaitN(ctx, n)
	}
}

// passSender sends batches as groups of one stream, pass by pass.
type passSender struct {
	session *client.Session
	passes  *record.Passes
	count   atomic.Int64 // passes of inputs that were sent
}

// send leaves inputs that are answered out of the passes that follow.
func (p *passSender) send(ctx context.Context, from, to int) []answer {
	group, err := p.session.Open(ctx, ids(from, to))
	if err != nil {
		return failed(from, to, err)
	}
	var scratch []float32
	started := time.Now()
	for s := range p.passes.S {
		rows := group.Rows()
		if len(rows) == 0 {
			break
		}
		values := passValues(&scratch, p.passes, s, from, to)
		if err := group.SendRows(rows, pickRows(values, rows, p.passes.K)); err != nil {
			return failed(from, to, err)
		}
		p.count.Add(int64(len(rows)))
		if err := group.Sync(ctx); err != nil {
			return failed(from, to, err)
		}
	}
	answers := make([]answer, to-from)
	for r := range group.Results() {
		answers[r.Row] = answer{from + r.Row, r, time.Since(started)}
	}
	return answers
}

// pickRows is some rows of the values of a pass, rising.
func pickRows(values []float32, rows []int, classes int) []float32 {
	if len(rows)*classes == len(values) {
		return values
	}
	picked := make([]float32, 0, len(rows)*classes)
	for _, row := range rows {
		picked = append(picked, values[row*classes:][:classes]...)
	}
	return picked
}

// unarySender sends batches as single calls, each of which states the terms.
func unarySender(
	daemon *client.Client, passes *record.Passes, terms client.Batch,
) func(context.Context, int, int) []answer {
	return func(ctx context.Context, from, to int) []answer {
		batch := terms
		batch.Passes, batch.Inputs, batch.IDs = passes.S, to-from, ids(from, to)
		batch.Layout, batch.Values = batchValues(passes, from, to)
		started := time.Now()
		results, err := daemon.Decompose(ctx, batch)
		if err != nil {
			return failed(from, to, err)
		}
		latency := time.Since(started)
		answers := make([]answer, len(results))
		for i, r := range results {
			answers[i] = answer{from + i, r, latency}
		}
		return answers
	}
}

// ids are the positions in the recording.
func ids(from, to int) []string {
	ids := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}

// failed answers inputs that could not be sent.
func failed(from, to int, err error) []answer {
	answers := make([]answer, 0, to-from)
	for i := from; i < to; i++ {
		answers = append(answers, answer{index: i, Result: client.Result{Row: i - from, Err: err}})
	}
	return answers
}

// passValues is one pass of the inputs from up to to, [inputs][classes]: a part of
// the recording where it lies there so, else of scratch.
func passValues(scratch *[]float32, p *record.Passes, s, from, to int) []float32 {
	if p.Layout == record.SNK && p.Float32 != nil {
		return p.Float32[p.Offset(s, from):][:(to-from)*p.K]
	}
	*scratch = (*scratch)[:0]
	for n := from; n < to; n++ {
		at := p.Offset(s, n)
		if p.Float32 != nil {
			*scratch = append(*scratch, p.Float32[at:at+p.K]...)
			continue
		}
		for _, v := range p.Float64[at : at+p.K] {
			*scratch = append(*scratch, float32(v))
		}
	}
	return *scratch
}

// batchValues is all passes of the inputs from up to to, and how they are laid
// out.
func batchValues(p *record.Passes, from, to int) (ckdv1.Layout, []float32) {
	if p.Layout == record.NSK && p.Float32 != nil {
		return client.NSK, p.Float32[p.Offset(0, from):][:(to-from)*p.S*p.K]
	}
	values := make([]float32, 0, p.S*(to-from)*p.K)
	var scratch []float32
	for s := range p.S {
		values = append(values, passValues(&scratch, p, s, from, to)...)
	}
	return client.SNK, values
}

// replayOutput prints answers and counts them.
type replayOutput struct {
	w      *bufio.Writer
	detail ckdv1.Detail
	quiet  bool

	decided   int
	settled   int // before the last pass
	passes    int // that were used
	actions   map[string]int
	latencies []time.Duration // of what was decided
	failed    refusals
}

// take prints the answers of a batch, at once: a slow replay is watched.
func (o *replayOutput) take(answers []answer) error {
	lines := newLineEncoder(o.w)
	for _, a := range answers {
		var l any
		if a.Err != nil {
			r := answerRefusal(a)
			o.failed.add(r)
			l = r
		} else {
			decided := wireLine(a.index, a.Decomposition, o.detail)
			o.count(decided, a)
			l = decided
		}
		if o.quiet {
			continue
		}
		if err := lines.Encode(l); err != nil {
			return fmt.Errorf("input %d: %w", a.index, err)
		}
	}
	return o.w.Flush()
}

func (o *replayOutput) count(l *line, a answer) {
	o.decided++
	if a.Settled() {
		o.settled++
	}
	o.passes += l.Passes
	o.latencies = append(o.latencies, a.latency)
	if o.actions == nil {
		o.actions = map[string]int{}
	}
	if l.Decision != nil {
		o.actions[l.Decision.Action]++
	}
}

// answerRefusal is the line of an input that the daemon gave no result for.
func answerRefusal(a answer) *refusal {
	// The index stands beside the message, which begins with it too.
	message := strings.TrimPrefix(statusText(a.Err), fmt.Sprintf("input %q: ", strconv.Itoa(a.index)))
	if e := (*client.InputError)(nil); !errors.As(a.Err, &e) || e.Unanswered {
		message = "no answer: " + message
	}
	word := enumWord("ERROR_REASON_", client.Reason(a.Err))
	if client.Reason(a.Err) == ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		// Not the daemon's own words, but those of the connection.
		word = enumWord("", code.Code(status.Code(a.Err)))
	}
	return &refusal{a.index, reason{word, message}}
}

// statusText is the text of an error's status, without what the way to here put
// around it.
func statusText(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}

// summary says how it went. Latencies are of the inputs that were decided.
func (o *replayOutput) summary(w io.Writer, elapsed time.Duration) {
	seconds := elapsed.Seconds()
	fmt.Fprintf(w, "ckd: %d inputs decided, %d not, in %.3f s: %.0f inputs/s, %.0f passes/s\n",
		o.decided, o.failed.count, seconds, float64(o.decided)/seconds, float64(o.passes)/seconds)
	if o.decided == 0 {
		return
	}
	slices.Sort(o.latencies)
	fmt.Fprintf(w, "ckd: latency p50 %v, p90 %v, p99 %v, max %v\n", percentile(o.latencies, 50),
		percentile(o.latencies, 90), percentile(o.latencies, 99), percentile(o.latencies, 100))
	fmt.Fprintf(w, "ckd: retain %d, defer %d, observe %d\n", o.actions["retain"], o.actions["defer"], o.actions["observe"])
}

// saving says what it brought to settle inputs before the last of their passes. More are
// sent than are used where the daemon is away, and does not say what it has dealt with.
func (o *replayOutput) saving(w io.Writer, settles bool, passes, sent int) {
	if !settles && o.settled == 0 {
		fmt.Fprintf(w, "ckd: nothing is settled early: the daemon has no rule in force for %d passes of this model, or audits have stopped it\n", passes)
		return
	}
	if o.decided == 0 || sent == 0 {
		return
	}
	inputs := o.decided + o.failed.count
	fmt.Fprintf(w, "ckd: %d of %d inputs settled before their last pass: %.1f of %d passes used on average\n",
		o.settled, inputs, float64(o.passes)/float64(o.decided), passes)
	fmt.Fprintf(w, "ckd: %d passes sent, %d saved: %.1fx fewer\n", sent, inputs*passes-sent, float64(inputs*passes)/float64(sent))
}

// percentile of sorted values by the nearest rank: the least of them that p of a
// hundred do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1].Round(time.Microsecond)
}
