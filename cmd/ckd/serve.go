package main

import (
	"github.com/ckd-project/ckd/internal/app"
	"github.com/ckd-project/ckd/internal/config"
)

type serveCmd struct {
	config.Config
}

// Help is what ckd serve --help adds to the list of flags.
func (c *serveCmd) Help() string {
	return `Every flag may also be set by its environment variable or as a key of the --config file; a flag
wins over the environment, the environment over the file.

    ckd serve --policy deploy/policy

The policies are loaded again on SIGHUP and when their files change. The daemon stops on SIGTERM or
SIGINT: it says NOT_SERVING, opens no more inputs, lets those that are open go on for the shutdown grace,
and exits with 0. It exits with 1 where it cannot start or a part fails, and names the cause.`
}

// Run serves until it is told to stop.
func (c *serveCmd) Run(ctx *cmdContext) error {
	log, err := app.NewLogger(ctx.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	app.LimitMemory(log)
	daemon, err := app.New(&c.Config, log)
	if err != nil {
		return err
	}
	return daemon.Run(ctx.Ctx)
}
