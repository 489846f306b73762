package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/config"
)

type healthcheckCmd struct {
	Admin   string        `default:"127.0.0.1:9590" placeholder:"ADDR" env:"CKD_ADMIN" help:"Admin address of the daemon. (${default})"`
	TLS     bool          `name:"admin-tls" env:"CKD_ADMIN_TLS" help:"The admin address speaks TLS."`
	CA      string        `name:"tls-ca" placeholder:"FILE" env:"CKD_TLS_CA" help:"PEM file of the authorities that its certificate must be from. Default: those of this system."`
	Name    string        `name:"server-name" placeholder:"NAME" env:"CKD_SERVER_NAME" help:"Name that its certificate must be for. Default: the host of --admin."`
	Timeout time.Duration `default:"2s" help:"How long to wait for an answer. (${default})"`
}

// BeforeReset removes empty variables from the environment: the daemon beside it passes over them too.
func (c *healthcheckCmd) BeforeReset() error {
	config.CleanEnvironment()
	return nil
}

// Run asks the daemon whether it wants traffic. It returns nil if so.
func (c *healthcheckCmd) Run(ctx *cmdContext) error {
	if _, _, err := net.SplitHostPort(c.Admin); err != nil {
		return fail(exitUsage, fmt.Errorf("--admin %q: expected HOST:PORT of a daemon's admin address", c.Admin))
	}
	wait, cancel := context.WithTimeout(ctx.Ctx, c.Timeout)
	defer cancel()
	scheme, direct := "http://", &http.Transport{} // a probe uses no proxy
	if c.TLS {
		var err error
		if direct.TLSClientConfig, err = c.tls(); err != nil {
			return fail(exitUsage, err)
		}
		scheme = "https://"
	}
	request, err := http.NewRequestWithContext(wait, http.MethodGet, scheme+c.Admin+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: direct}).Do(request)
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

// tls returns how to verify the certificate of the daemon.
func (c *healthcheckCmd) tls() (*tls.Config, error) {
	trust := &tls.Config{ServerName: c.Name, MinVersion: tls.VersionTLS12}
	if c.CA == "" {
		return trust, nil
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	trust.RootCAs = x509.NewCertPool()
	if !trust.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-ca %s: no certificate in it, expected PEM", c.CA)
	}
	return trust, nil
}
