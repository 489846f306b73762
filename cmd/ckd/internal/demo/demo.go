package demo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/daemon"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/recordings"
)

// Options holds the choices of the user.
type Options struct {
	// Keep leaves the daemon up, with slow traffic, until the context ends.
	Keep bool
	// Shift makes misses more frequent after the report's outcomes are in.
	Shift bool
	// Listen, HTTP and Admin are the daemon's addresses.
	Listen, HTTP, Admin string
	// Progress is called with the number of inputs answered, by many goroutines. It may be nil.
	Progress func(answered, inputs int)
	// Reading is called as Progress is, while simulated readers answer. It may be nil.
	Reading func(answered, inputs int)
	// Ready is called with the report, before Keep's traffic, to print it.
	Ready func(*Report) error
	// Log takes the errors of the daemon's log. Its warnings repeat what the report says.
	Log io.Writer

	rate float64 // inputs per second that Keep streams; keepRate by default
}

// keepRate is the rate of slow traffic, in inputs per second.
const keepRate = 40

// receiptKey is the key of receipts. It is always the same, and so are the inputs that it draws for
// audits.
var receiptKey = strings.Repeat("c4", 32)

// Run runs the demo. It returns after the report or, with Keep, when ctx ends.
func Run(ctx context.Context, o Options) error {
	recording, err := recordings.CTGMCDropout()
	if err != nil {
		return err
	}
	tuning, shown := split(recording.Passes.N)
	log, err := daemon.NewLogger(o.Log, "error", "console")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "ckd-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // the rest stays in the temporary folder
	daemon, err := start(o, folder, log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	parts, partCtx := errgroup.WithContext(running)
	parts.Go(func() error { return daemon.Run(running) })
	parts.Go(func() error {
		defer stop() // the demo is over
		return stream(partCtx, o, daemon, recording, shown, tuning)
	})
	if err := parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return ctx.Err() // nil unless the user ended the demo
}

// start builds the daemon of the demo. Its policy, its ledger and the keys of its receipts are in a folder.
func start(o Options, folder string, log *zap.Logger) (*daemon.Daemon, error) {
	c, err := config.Default()
	if err != nil {
		return nil, err
	}
	c.Listen, c.HTTP, c.Admin, c.ShutdownGrace = []string{o.Listen}, o.HTTP, o.Admin, time.Second
	c.RecentInputs = 1000 // their ids are numbers, not personal data
	c.Ledger, c.ReceiptKeys = filepath.Join(folder, "ledger"), filepath.Join(folder, "receipt-keys")
	c.Policy = []string{filepath.Join(folder, "policy.yaml")}
	if err := errors.Join(os.WriteFile(c.ReceiptKeys, []byte(receiptKey), 0o600), os.WriteFile(c.Policy[0], policyText, 0o600),
		ledger.Begin(c.Ledger, ledger.Options{})); err != nil {
		return nil, err
	}
	return daemon.New(c, log)
}

// stream plays the model server: it streams the inputs, reports the results, and then keeps sending
// if the options ask for traffic.
func stream(ctx context.Context, o Options, daemon *daemon.Daemon, r *recordings.Recording, shown, tuning []int) error {
	c, err := client.Dial(daemon.Targets()[0])
	if err != nil {
		return err
	}
	defer c.Close()
	trial := newTrial(c, r, daemon.AdminURL()+"/metrics")
	started := time.Now()
	results, err := streamInputs(ctx, c, r, shown, idsOf(shown), o.Progress)
	if err != nil {
		return err
	}
	report := &Report{
		recording: r, tuned: len(tuning), shown: shown, results: results, took: time.Since(started),
		keep: o.Keep, api: daemon.Targets()[0], http: daemon.HTTPURL(), admin: daemon.AdminURL(),
	}
	if report.model, err = c.Model(ctx, modelName); err != nil {
		return err
	}
	if err := trial.readers.read(ctx, shown, results); err != nil {
		return err
	}
	if report.outcomes, err = trial.outcomes(ctx, shown, o.Reading); err != nil {
		return err
	}
	if o.Shift {
		if report.outcomes.shift, err = trial.shift(ctx, shown, report.missed()); err != nil {
			return err
		}
	}
	if err := o.Ready(report); err != nil || !o.Keep {
		return err
	}
	population := append(slices.Clone(shown), tuning...)
	if o.Shift { // which goes on
		population = shifted(shown, report.missed())
	}
	return trial.keep(ctx, population, cmp.Or(o.rate, keepRate))
}
