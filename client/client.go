package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/local"
	_ "google.golang.org/grpc/health" // by which a client learns of its replicas' health
	"google.golang.org/grpc/keepalive"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// How much a result carries.
const (
	Decision = ckdv1.Detail_DETAIL_DECISION // the decision and the unreliable classes
	Vectors  = ckdv1.Detail_DETAIL_VECTORS  // besides, C_k, skewness and mean of every class
	Full     = ckdv1.Detail_DETAIL_FULL     // everything
)

// What rows are. The zero value is whatever the policy accepts.
const (
	Probabilities = ckdv1.Kind_KIND_PROBABILITIES
	Logits        = ckdv1.Kind_KIND_LOGITS
	Dirichlet     = ckdv1.Kind_KIND_DIRICHLET
)

const (
	// defaultMessageBytes is what a gRPC server accepts unless it is told otherwise.
	defaultMessageBytes = 4 << 20
	// receiveBytes leaves room for full results of many inputs and classes: all
	// that one block finishes comes in one message.
	receiveBytes = 64 << 20
)

// connecting is as patient as Reconnect is by default: what grpc waits for between
// two connections, no attempt of ours can cut short.
var connecting = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay: defaultBaseDelay, Multiplier: backoff.DefaultConfig.Multiplier,
		Jitter: backoff.DefaultConfig.Jitter, MaxDelay: defaultMaxDelay,
	},
	MinConnectTimeout: 20 * time.Second,
}

// pings find out that a daemon does not answer any more, though its connection stays.
// The daemon bears them every ten seconds.
var pings = keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}

// Client talks to a daemon, over a connection that is made when it is needed and
// made again when it is lost.
type Client struct {
	conn         *grpc.ClientConn
	rpc          ckdv1.UncertaintyServiceClient
	token        *tokenFile // nil for none
	messageBytes int
}

// Option changes how Dial makes a Client.
type Option func(*options)

type options struct {
	credentials  credentials.TransportCredentials
	insecure     bool      // WithInsecure
	tls          *TLSFiles // nil for none
	token        *string   // a file; nil for none
	balancing    bool
	dial         []grpc.DialOption
	messageBytes int
}

// WithCredentials secures the connection, as with credentials.NewTLS.
func WithCredentials(c credentials.TransportCredentials) Option {
	return func(o *options) { o.credentials = c }
}

// WithInsecure allows plaintext to any address: whoever is on the way can read
// the passes and the token, and forge the decisions.
func WithInsecure() Option {
	return func(o *options) { o.insecure = true }
}

// balanced is grpc's configuration for WithBalancing: the empty name asks for the
// health of the daemon as a whole.
const balanced = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// WithBalancing spreads streams and calls over the replicas: over every address
// that the target's name has, such as those of a headless service at
// dns:///ckd.default.svc:8590. Replicas that are not to be reached, or whose health
// says that they are not serving, get none.
//
// A session is one stream, and so on one replica: the next session, or what
// follows when its stream breaks, goes to the next. Names are looked up again when
// a connection is lost; replicas that were added are found then.
func WithBalancing() Option {
	return func(o *options) { o.balancing = true }
}

// WithDialOptions adds options of grpc's own. They come last, and so win.
func WithDialOptions(opts ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, opts...) }
}

// WithMessageBytes sets how large a message the daemon accepts, for Decompose:
// larger batches are sent in several calls. The default is 4 MiB. A session
// learns the limit from the daemon.
func WithMessageBytes(n int) Option {
	return func(o *options) { o.messageBytes = n }
}

// Dial makes a client of the daemon at target: host:port, unix:/path/of.sock, or
// any other name that grpc resolves. It does not wait for a connection.
//
// Without credentials the connection is plaintext, which is refused unless the
// target is a unix socket or a loopback address.
func Dial(target string, opts ...Option) (*Client, error) {
	o := options{messageBytes: defaultMessageBytes}
	for _, opt := range opts {
		opt(&o)
	}
	if o.messageBytes <= blockOverhead {
		return nil, fmt.Errorf("dial %q: messages of %d bytes, expected more than %d", target, o.messageBytes, blockOverhead)
	}
	secure, err := o.transport(target)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", target, err)
	}
	dial := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(receiveBytes)),
		grpc.WithConnectParams(connecting),
		grpc.WithKeepaliveParams(pings),
	}
	if secure != nil {
		dial = append(dial, grpc.WithTransportCredentials(secure))
	}
	if o.balancing {
		dial = append(dial, grpc.WithDefaultServiceConfig(balanced))
	}
	var token *tokenFile
	if o.token != nil {
		strict := !o.insecure && !(o.plain() && isLocal(target)) // there, grpc would ask for too much
		if token, err = openToken(*o.token, strict, o.insecure); err != nil {
			return nil, fmt.Errorf("dial %q: %w", target, err)
		}
		dial = append(dial, grpc.WithPerRPCCredentials(token), grpc.WithChainUnaryInterceptor(token.again))
	}
	conn, err := grpc.NewClient(target, append(dial, o.dial...)...)
	// These have no type of their own. Credentials may also be among grpc's options, so
	// that grpc alone knows what there is.
	switch {
	case err == nil:
		return &Client{conn, ckdv1.NewUncertaintyServiceClient(conn), token, o.messageBytes}, nil
	case strings.Contains(err.Error(), "no transport security set"):
		return nil, fmt.Errorf("dial %q: no credentials: plaintext is for unix sockets and loopback addresses,"+
			" expected WithTLS or WithCredentials, or WithInsecure where the network is trusted", target)
	case strings.Contains(err.Error(), "require transport level security"):
		return nil, fmt.Errorf("dial %q: a token is not sent over plaintext, expected WithTLS or WithCredentials,"+
			" or WithInsecure where the network is trusted", target)
	}
	return nil, fmt.Errorf("dial %q: %w", target, err)
}

// Close ends the connection. Sessions that are still open break.
func (c *Client) Close() error { return c.conn.Close() }

// Models returns every model that the daemon has a policy for, by name.
func (c *Client) Models(ctx context.Context) ([]*ckdv1.Model, error) {
	reply, err := c.rpc.ListModels(ctx, &ckdv1.ListModelsRequest{})
	return reply.GetModels(), err
}

// Model returns one model's policy as it is in force.
func (c *Client) Model(ctx context.Context, name string) (*ckdv1.Model, error) {
	reply, err := c.rpc.GetModel(ctx, &ckdv1.GetModelRequest{Model: name})
	return reply.GetModel(), err
}

// plain tells that no option secures the connection.
func (o *options) plain() bool { return o.credentials == nil && o.tls == nil }

// transport is the credentials of the connection; nil where there are none.
func (o *options) transport(target string) (credentials.TransportCredentials, error) {
	if o.insecure && !o.plain() || o.tls != nil && o.credentials != nil {
		return nil, errors.New("two ways to secure the connection, expected one of WithTLS, WithCredentials and WithInsecure")
	}
	switch {
	case o.tls != nil:
		return newFileCredentials(*o.tls)
	case o.insecure:
		return insecure.NewCredentials(), nil
	case o.credentials == nil && isLocal(target):
		// They look at each connection, so that a name which turns out to be
		// elsewhere is refused as well.
		return local.NewCredentials(), nil
	}
	return o.credentials, nil
}

// isLocal tells by its text whether a target is on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	for _, scheme := range []string{"dns:", "passthrough:"} {
		if rest, ok := strings.CutPrefix(target, scheme); ok {
			target = strings.TrimPrefix(rest, "///")
		}
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = strings.Trim(target, "[]")
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
