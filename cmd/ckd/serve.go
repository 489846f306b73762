package main

import (
	"github.com/ckd-project/ckd/internal/app"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

type serveCmd struct {
	config.Config
}

// Help is what ckd serve --help adds to the list of flags.
func (c *serveCmd) Help() string {
	return `Every flag may also be set by its environment variable or as a key of the --config file; a flag
wins over the environment, the environment over the file.

    ckd serve --policy deploy/policy

The daemon stops on SIGTERM or SIGINT: it says NOT_SERVING, lets open calls go on for the shutdown
grace, and exits with 0. It exits with 1 where it cannot start or a part fails, and names the cause.`
}

// Run serves until it is told to stop.
func (c *serveCmd) Run(ctx *cmdContext) error {
	log, err := app.NewLogger(ctx.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	daemon, err := app.New(&c.Config, log, func() (*policy.Set, error) { return store.Load(c.Policy...) })
	if err != nil {
		return err
	}
	return daemon.Run(ctx.Ctx)
}
