package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/server"
)

// security is who the daemon is, and who may call it. Either may be nil.
type security struct {
	certs    *certs.Source
	access   *access.Store
	log      *zap.Logger
	metrics  *metrics.Metrics
	refusals *server.Refusals
	note     func(what, text string) // of a failed reload; empty once it is mended
}

// newSecurity reads the files of certificates and identities.
func newSecurity(c *config.Config, log *zap.Logger, m *metrics.Metrics, refusals *server.Refusals) (*security, error) {
	s := &security{log: log, metrics: m, refusals: refusals}
	if c.InsecurePlaintext {
		log.Warn("insecure-plaintext: whoever is on the network can read passes and forge decisions where an address is beyond loopback without TLS")
	}
	var options access.Options
	if c.TLSCert != "" {
		source, err := certs.Load(certs.Options{
			Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA, CRL: c.TLSCRL, TLS12: c.TLSMinVersion == "1.2",
		})
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		s.certs, options.CheckCertificate = source, source.Check
		m.CertificateNotAfter(source.NotAfter())
		if c.TLSClientCA == "" && c.Access == "" {
			log.Warn("TLS without tls-client-ca or access: whoever reaches the daemon may use it")
		}
	}
	if c.Access != "" {
		options.Refused = s.refused
		store, err := access.Open(c.Access, options)
		if err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
		s.access = store
		log.Info("identities in force", zap.String("hash", store.Hash()))
	}
	return s, nil
}

// accessReasons are the reasons of refusals as metrics have them.
func accessReasons() (words []string) {
	for _, r := range access.Reasons() {
		words = append(words, string(r))
	}
	return words
}

// refused tells of a call that was refused.
func (s *security) refused(_ context.Context, r access.Refusal) {
	s.metrics.AccessRefused(string(r.Why))
	s.refusals.Call(r.Who, string(r.Why), zap.String("what", httperror.Clip(r.What)), zap.String("from", r.From))
}

// watch reads the files again when they change, until ctx ends.
func (s *security) watch(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	if s.certs != nil {
		watching.Go(func() { s.certs.Watch(ctx, s.certsReloaded) })
	}
	if s.access != nil {
		watching.Go(func() { s.access.Watch(ctx, s.accessReloaded) })
	}
}

// reload reads the files now.
func (s *security) reload(trigger string) {
	if s.certs != nil {
		s.certsReloaded(s.certs.Reload(trigger))
	}
	if s.access != nil {
		s.accessReloaded(s.access.Reload(trigger))
	}
}

func (s *security) certsReloaded(o watch.Outcome) {
	s.reloaded("certificates", o, zap.Time("not_after", s.certs.NotAfter()))
	s.metrics.CertificateNotAfter(s.certs.NotAfter())
	if o.Changed && s.access != nil {
		s.access.Recheck() // who was let in by a certificate that is good no more
	}
}

func (s *security) accessReloaded(o watch.Outcome) { s.reloaded("access", o) }

// reloaded tells of a reload.
func (s *security) reloaded(what string, o watch.Outcome, fields ...zap.Field) {
	fields = append(fields, zap.String("trigger", o.Trigger), zap.String("files", what))
	if o.Hash != "" {
		fields = append(fields, zap.String("hash", o.Hash))
	}
	switch {
	case o.Err != nil:
		s.metrics.SecurityReloadFailed(what)
		s.note(what, what+": not reloaded, what was in force stays; the log has the cause") // which may quote the file
		s.log.Error("not reloaded; what was in force stays", append(fields, zap.Error(o.Err))...)
	case o.Changed:
		s.log.Info("reloaded", fields...)
	}
	if o.Err == nil {
		s.note(what, "")
	}
	for _, warning := range o.Warnings {
		s.log.Warn(warning, fields...)
	}
	if o.WatchErr != nil {
		s.log.Warn("files cannot be watched; changes are found by a slow poll", append(fields, zap.Error(o.WatchErr))...)
	}
}

// adminNeed is what a request of the admin address asks of who sends it.
func adminNeed(r *http.Request) access.Need {
	switch r.URL.Path {
	case "/livez", "/readyz", "/healthz", "/metrics":
		return access.NeedNothing
	case "/-/reload":
		return access.NeedReload
	}
	return access.NeedAdmin
}

// apiNeed is what a request of the API over HTTP asks of who sends it.
func apiNeed(r *http.Request) access.Need {
	switch r.URL.Path {
	case "/v2/health/live", "/v2/health/ready":
		return access.NeedNothing
	}
	return access.NeedIdentity
}
