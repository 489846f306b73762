package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
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
	Vectors  = ckdv1.Detail_DETAIL_VECTORS  // also C_k, skewness and mean of every class
	Full     = ckdv1.Detail_DETAIL_FULL     // everything
)

const (
	// defaultMessageBytes is what every daemon takes whose max-message-bytes is not set.
	defaultMessageBytes = 512 << 10
	// receiveBytes leaves room for full results of many inputs and classes: one message holds all
	// results that one block finishes.
	receiveBytes = 64 << 20
)

// connecting sets grpc's delays between connections to the defaults of Reconnect: a session's
// attempts cannot cut these delays short.
var connecting = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay: baseDelay, Multiplier: backoff.DefaultConfig.Multiplier,
		Jitter: backoff.DefaultConfig.Jitter, MaxDelay: defaultMaxDelay,
	},
	MinConnectTimeout: 20 * time.Second,
}

// pings detect a daemon that no longer answers although its connection stands. The daemon permits
// one ping every ten seconds.
var pings = keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}

// Client talks to a daemon. It connects when it needs to, and again when the connection is lost.
type Client struct {
	conn         *grpc.ClientConn
	rpc          ckdv1.UncertaintyServiceClient
	token        *tokenFile // nil without a token
	messageBytes int        // the largest message to send
}

// Option changes how Dial makes a Client.
type Option func(*options)

type options struct {
	insecure     bool      // WithInsecure
	tls          *TLSFiles // nil without WithTLS
	token        *string   // path of a file; nil without WithTokenFile
	balancing    bool
	dial         []grpc.DialOption
	messageBytes int
}

// WithInsecure allows plaintext to any address. Anyone on the network path can then read the passes
// and the token, and forge the decisions.
func WithInsecure() Option {
	return func(o *options) { o.insecure = true }
}

// balanced configures grpc for WithBalancing. The empty service name asks for the health of the
// whole daemon.
const balanced = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// WithBalancing spreads streams and calls over the replicas: over every address of the target's
// name, for example of a headless service at dns:///ckd.default.svc:8590. Replicas that cannot be
// reached, or that report that they are not serving, get no traffic.
//
// A session uses one stream, and so one replica. The next session, or the next stream of the same
// session, goes to the next replica. Names are looked up again when a connection is lost, which is
// when new replicas are found.
func WithBalancing() Option {
	return func(o *options) { o.balancing = true }
}

// WithDialOptions adds grpc options, such as credentials that WithTLS does not provide. They override
// those of this package.
func WithDialOptions(opts ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, opts...) }
}

// WithMessageBytes sets the largest message that the client sends: what is larger becomes several
// calls, or blocks of a session. The default is 512 KiB, which every daemon takes unless it is set
// to take less. Sessions keep to the daemon's limit, which they learn as they open.
func WithMessageBytes(n int) Option {
	return func(o *options) { o.messageBytes = n }
}

// Dial returns a client of the daemon at target: host:port, unix:/path/of.sock, or any other name
// that grpc resolves. It does not wait for a connection.
//
// Without credentials the connection is plaintext. Dial refuses that unless the target is a unix
// socket or a loopback address.
func Dial(target string, opts ...Option) (*Client, error) {
	o := options{messageBytes: defaultMessageBytes}
	for _, opt := range opts {
		opt(&o)
	}
	if o.messageBytes <= blockOverhead {
		return nil, fmt.Errorf("dial %q: messages of %d bytes, expected more than %d", target, o.messageBytes, blockOverhead)
	}
	if n := socketPathBytes(target); n > mostSocketPath {
		return nil, fmt.Errorf("dial %q: a path of %d bytes, expected at most %d, which is the system's limit for sockets: "+
			"a shorter one, or one relative to the working directory", target, n, mostSocketPath)
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
	if secure != nil && slices.Contains([]string{"insecure", "local"}, secure.Info().SecurityProtocol) {
		dial = append(dial, grpc.WithNoProxy()) // the proxy of the environment would read ids and passes
	}
	if o.balancing {
		dial = append(dial, grpc.WithDefaultServiceConfig(balanced))
	}
	var token *tokenFile
	if o.token != nil {
		strict := !o.insecure && !(o.tls == nil && isLocal(target)) // grpc takes the loopback for plaintext
		if token, err = openToken(*o.token, strict, o.insecure); err != nil {
			return nil, fmt.Errorf("dial %q: %w", target, err)
		}
		dial = append(dial, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient(target, append(dial, o.dial...)...)
	// grpc's errors have no types. Only grpc knows all credentials, because WithDialOptions may hold
	// some too.
	switch {
	case err == nil:
		return &Client{conn, ckdv1.NewUncertaintyServiceClient(conn), token, o.messageBytes}, nil
	case strings.Contains(err.Error(), "no transport security set"):
		return nil, fmt.Errorf("dial %q: no credentials: plaintext is for unix sockets and loopback addresses,"+
			" expected WithTLS, or WithInsecure where the network is trusted", target)
	case strings.Contains(err.Error(), "require transport level security"):
		return nil, fmt.Errorf("dial %q: a token is not sent over plaintext, expected WithTLS,"+
			" or WithInsecure where the network is trusted", target)
	}
	return nil, fmt.Errorf("dial %q: %w", target, err)
}

// Close closes the connection. Sessions that are still open break.
func (c *Client) Close() error { return c.conn.Close() }

// Models returns every model for which the daemon has a policy, sorted by name.
func (c *Client) Models(ctx context.Context) ([]*ckdv1.Model, error) {
	reply, err := c.rpc.ListModels(ctx, &ckdv1.ListModelsRequest{})
	return reply.GetModels(), err
}

// Model returns the policy in force for one model.
func (c *Client) Model(ctx context.Context, name string) (*ckdv1.Model, error) {
	reply, err := c.rpc.GetModel(ctx, &ckdv1.GetModelRequest{Model: name})
	return reply.GetModel(), err
}

// transport returns the credentials of the connection, or nil without any.
func (o *options) transport(target string) (credentials.TransportCredentials, error) {
	switch {
	case o.insecure && o.tls != nil:
		return nil, errors.New("two ways to secure the connection, expected WithTLS or WithInsecure")
	case o.tls != nil:
		return newFileCredentials(*o.tls)
	case o.insecure:
		return insecure.NewCredentials(), nil
	case isLocal(target):
		// These check each connection, so a local name that resolves to another machine is refused.
		return local.NewCredentials(), nil
	}
	return nil, nil
}

// mostSocketPath is how many bytes the path of a unix socket may have: the system's own message for more
// is "invalid argument", when it is too late for a fault of Dial.
const mostSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// socketPathBytes returns the length of the path that a target names; 0 if it names none.
func socketPathBytes(target string) int {
	path, isUnix := strings.CutPrefix(target, "unix:")
	if !isUnix {
		path, isUnix = strings.CutPrefix(target, "unix-abstract:")
	}
	if !isUnix {
		return 0
	}
	return len(strings.TrimPrefix(path, "//")) // as in unix:///path
}

// isLocal reports whether the text of a target names this machine.
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
