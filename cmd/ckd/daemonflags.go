package main

import "github.com/ckd-project/ckd/client"

// daemonFlags says which daemon to call, and how.
type daemonFlags struct {
	Addr     string `required:"" placeholder:"ADDR" help:"Address of the daemon: host:port or unix:PATH."`
	Insecure bool   `help:"Allow plaintext to another machine. To this one it is allowed anyway."`
	TLS      bool   `name:"tls" help:"Use TLS, with the authorities of this system unless --tls-ca names others."`
	TLSCA    string `name:"tls-ca" placeholder:"FILE" help:"PEM file of the authorities that the daemon's certificate must be from. Implies --tls."`
	TLSCert  string `name:"tls-cert" placeholder:"FILE" help:"PEM file of a certificate to show. Implies --tls."`
	TLSKey   string `name:"tls-key" placeholder:"FILE" help:"PEM file of its key."`
	Token    string `name:"token-file" placeholder:"FILE" help:"File with the bearer token to present."`
}

// dial returns a client of the daemon.
func (f *daemonFlags) dial() (*client.Client, error) {
	var options []client.Option
	if f.Insecure {
		options = append(options, client.WithInsecure())
	}
	if f.TLS || f.TLSCA != "" || f.TLSCert != "" || f.TLSKey != "" {
		options = append(options, client.WithTLS(client.TLSFiles{CA: f.TLSCA, Cert: f.TLSCert, Key: f.TLSKey}))
	}
	if f.Token != "" {
		options = append(options, client.WithTokenFile(f.Token))
	}
	return client.Dial(f.Addr, options...)
}
