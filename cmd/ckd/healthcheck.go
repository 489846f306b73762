package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

type healthcheckCmd struct {
	Admin   string        `default:"127.0.0.1:9590" placeholder:"ADDR" env:"CKD_ADMIN" help:"Admin address of the daemon. (${default})"`
	Timeout time.Duration `default:"2s" help:"How long to wait for an answer. (${default})"`
}

// Run asks the daemon whether it wants traffic: exit code 0 if it does.
func (c *healthcheckCmd) Run(ctx *cmdContext) error {
	if _, _, err := net.SplitHostPort(c.Admin); err != nil {
		return fail(exitUsage, fmt.Errorf("--admin %q: expected HOST:PORT of a daemon's admin address", c.Admin))
	}
	wait, cancel := context.WithTimeout(ctx.Ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(wait, http.MethodGet, "http://"+c.Admin+"/readyz", nil)
	if err != nil {
		return err
	}
	direct := &http.Client{Transport: &http.Transport{}} // no proxy between a daemon and its probe
	answer, err := direct.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
