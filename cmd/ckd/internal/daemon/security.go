package daemon

import (
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/server"
)

// security holds the certificates of the daemon, the identities that may call it, and the keys of
// receipts. Each may be nil.
type security struct {
	certificates *tlsfiles.Source
	access       *auth.Store
	receipts     *receiptKeys
	log          *zap.Logger
	metrics      *metrics.Metrics
	refusals     *server.Refusals
	failed       *failedReloads
	files        []secretFiles // of what is not nil
}

// secretFiles holds the files that are read again when they change.
type secretFiles struct {
	what   string
	source interface {
		Watch(context.Context, func(watch.Outcome))
		Reload(trigger string) watch.Outcome
	}
}

// newSecurity loads the certificates and the identities that the settings name.
func newSecurity(c *config.Config, log *zap.Logger, m *metrics.Metrics, refusals *server.Refusals, failed *failedReloads) (*security, error) {
	s := &security{log: log, metrics: m, refusals: refusals, failed: failed}
	if c.InsecurePlaintext {
		log.Warn("insecure-plaintext: whoever is on the network can read passes and forge decisions where an address is beyond loopback without TLS")
	}
	var options auth.Options
	if c.TLSCert != "" {
		source, err := tlsfiles.Load(tlsfiles.Options{
			Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA, CRL: c.TLSCRL,
		})
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		s.certificates = source
		s.files = append(s.files, secretFiles{certificateFiles, source})
		m.CertificateNotAfter(source.NotAfter())
		if c.TLSClientCA == "" && c.Access == "" {
			log.Warn("TLS without tls-client-ca or access: whoever reaches the daemon may use it")
		}
	}
	if c.Access != "" {
		options.Refused, options.Fetched, options.Drain = s.refused, s.issuerKeysFetched, c.ShutdownGrace
		store, err := auth.Open(c.Access, options)
		if err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
		s.access = store
		s.files = append(s.files, secretFiles{"access", store})
		log.Info("identities in force", zap.String("hash", store.Hash()))
	}
	return s, nil
}

// useReceiptKeys loads the keys of receipts, if the settings name a file, and gives them to use now
// and whenever the file changes.
func (s *security) useReceiptKeys(path string, use func(*receipt.Keys)) (err error) {
	if path == "" {
		return nil
	}
	if s.receipts, err = openReceiptKeys(path, use); err != nil {
		return fmt.Errorf("receipt-keys: %w", err)
	}
	s.files = append(s.files, secretFiles{"receipt-keys", s.receipts})
	return nil
}

// receiptKeys returns the keys of receipts in force; nil without receipt-keys.
func (s *security) receiptKeys() *receipt.Keys { return s.receipts.keys() }

// refused counts and logs a call that was refused.
func (s *security) refused(_ context.Context, r auth.Refusal) {
	s.metrics.Refused("access", r.Why)
	s.refusals.Call(r.Who, r.Why, zap.String("what", httperror.Clip(r.What)), zap.String("from", r.From))
}

// watch reads the files again when they change, until ctx ends.
func (s *security) watch(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, f := range s.files {
		watching.Go(func() { f.source.Watch(ctx, func(o watch.Outcome) { s.reloaded(f.what, o) }) })
	}
}

// reload reads the files now. The trigger is for the log.
func (s *security) reload(trigger string) {
	for _, f := range s.files {
		s.reloaded(f.what, f.source.Reload(trigger))
	}
}

// issuerKeysFetched publishes in the log, the metrics and /healthz a fetch of the keys of a token
// issuer. /healthz needs no credentials, so the cause is in the log alone.
func (s *security) issuerKeysFetched(f auth.KeyFetch) {
	fields := []zap.Field{zap.String("issuer", f.URL), zap.Int("keys", f.Keys)}
	if f.Err == nil {
		s.failed.set("issuer "+f.URL, "")
		s.log.Info("keys of a token issuer in force", fields...)
		return
	}
	s.metrics.SecurityReloadFailed("issuer-keys")
	left := "those in force stay"
	if f.Keys == 0 {
		left = "none is in force"
	}
	s.failed.set("issuer "+f.URL, "issuer keys: not fetched, "+left+": see the log")
	s.log.Error("keys of a token issuer not fetched; "+left, append(fields, zap.Error(f.Err))...)
}

// certificateFiles names the files of certificates.
const certificateFiles = "certificates"

// reloaded publishes the outcome of a reload in the log, the metrics and /healthz.
func (s *security) reloaded(what string, o watch.Outcome) {
	fields := []zap.Field{zap.String("trigger", o.Trigger), zap.String("files", what)}
	if what == certificateFiles {
		fields = append(fields, zap.Time("not_after", s.certificates.NotAfter()))
		s.metrics.CertificateNotAfter(s.certificates.NotAfter())
	}
	if o.Hash != "" {
		fields = append(fields, zap.String("hash", o.Hash))
	}
	switch {
	case o.Err != nil:
		s.metrics.SecurityReloadFailed(what)
		s.failed.set(what, what+": not reloaded, what was in force stays: see the log") // /healthz needs no credentials
		s.log.Error("not reloaded; what was in force stays", append(fields, zap.Error(o.Err))...)
	case o.Changed:
		s.log.Info("reloaded", fields...)
	}
	if o.Err == nil {
		s.failed.set(what, "")
	}
	for _, warning := range o.Warnings {
		s.log.Warn(warning, fields...)
	}
}
