package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/cmd/ckd/internal/daemon"
	"github.com/ckd-project/ckd/internal/config"
)

type serveCmd struct {
	config.Config

	UntilStdinCloses bool `env:"CKD_UNTIL_STDIN_CLOSES" help:"Stop, as after SIGTERM, when the standard input ends: a program that holds its other end takes the daemon with it, however it dies."`
}

// Help returns the text that follows the usage in ckd serve --help.
func (c *serveCmd) Help() string {
	return `Every flag may also be set by its environment variable or as a key of the --config file; a flag
wins over the environment, the environment over the file.

    ckd serve --policy deploy/policy

The policies are loaded again on SIGHUP and when their files change. The daemon stops on SIGTERM or
SIGINT: it says NOT_SERVING, opens no more inputs, lets those that are open go on for the shutdown grace,
and exits with 0. A further SIGTERM changes nothing; a SIGINT while it stops ends it at once, with 130. It
exits with 1 where it cannot start or a part fails, and names the cause.

With --until-stdin-closes it also stops when its standard input ends, as that of a child does when its
parent dies.`
}

// Run serves until a signal stops it.
func (c *serveCmd) Run(ctx *cmdContext) error {
	// Who reads the log may go away: what cannot be written must not end the daemon. Nor must a SIGHUP that
	// comes before the daemon takes them: it reads all files again when it begins to watch them.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	log, err := daemon.NewLogger(ctx.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	for _, u := range c.Unusable {
		log.Warn("environment variable cannot be used, and counts as not set",
			zap.String("variable", u.Variable), zap.String("value", u.Value), zap.String("expected", u.Expected))
	}
	defer endAtOnce(ctx.Ctx, log)()
	d, err := daemon.New(&c.Config, log)
	if err != nil {
		return err
	}
	serving := ctx.Ctx
	if c.UntilStdinCloses {
		var stop context.CancelFunc
		serving, stop = context.WithCancel(serving)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, ctx.Stdin) // an input that cannot be read has ended too
			stop()
		}()
	}
	return d.Run(serving)
}

// endAtOnce ends the process on a SIGINT that comes while the daemon stops. A further SIGTERM
// changes nothing: a preStop hook and the kubelet both send one. The function that it returns ends
// this.
func endAtOnce(ctx context.Context, log *zap.Logger) (end func()) {
	stopping := ctx.Err() != nil
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if stopping && s == syscall.SIGINT {
				log.Error("interrupted while stopping: open inputs are lost")
				os.Exit(exitInterrupted)
			}
			stopping = true // the first signal has ended ctx
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
