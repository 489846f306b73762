package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Config is every setting of the daemon, as kong fills it.
type Config struct {
	File string `name:"config" type:"path" placeholder:"FILE" env:"CKD_CONFIG" help:"YAML file of settings: its keys are the names of these flags."`

	Policy []string `placeholder:"PATH" env:"CKD_POLICY" help:"Policy files, or folders of them. Needed."`
	Listen []string `default:"127.0.0.1:8590" placeholder:"ADDR" env:"CKD_LISTEN" help:"gRPC addresses: HOST:PORT or unix:PATH. Port 0 takes a free one. (${default})"`
	Admin  string   `default:"127.0.0.1:9590" placeholder:"ADDR" env:"CKD_ADMIN" help:"HTTP address of the triage page, /metrics, /livez, /readyz and /healthz, or \"off\". (${default})"`

	HTTP string `name:"http" default:"off" placeholder:"ADDR" env:"CKD_HTTP" help:"HTTP address of the API as JSON and of the Open Inference Protocol's REST form, or \"off\". (${default})"`

	TLSCert       string `name:"tls-cert" type:"path" placeholder:"FILE" env:"CKD_TLS_CERT" help:"PEM file of the certificate, and those between it and its CA: gRPC over TCP and the http address are then TLS. Files are read again when they change."`
	TLSKey        string `name:"tls-key" type:"path" placeholder:"FILE" env:"CKD_TLS_KEY" help:"PEM file of the certificate's key."`
	TLSClientCA   string `name:"tls-client-ca" type:"path" placeholder:"FILE" env:"CKD_TLS_CLIENT_CA" help:"PEM file of the CAs of clients: they then need a certificate of theirs (mTLS)."`
	TLSCRL        string `name:"tls-crl" type:"path" placeholder:"FILE" env:"CKD_TLS_CRL" help:"PEM file of the CAs' revocation lists."`
	TLSMinVersion string `name:"tls-min-version" default:"1.3" enum:"1.2,1.3" env:"CKD_TLS_MIN_VERSION" help:"Least version of TLS: ${enum}. (${default})"`
	AdminTLS      bool   `name:"admin-tls" env:"CKD_ADMIN_TLS" help:"TLS on the admin address too: probes and scrapes then need it."`
	Access        string `type:"path" placeholder:"FILE" env:"CKD_ACCESS" help:"YAML file of identities: who may call what. Every call but health then needs one."`

	InsecurePlaintext bool `env:"CKD_INSECURE_PLAINTEXT" help:"Allow addresses beyond loopback without TLS: whoever is on the network can then read passes and forge decisions."`

	AdminReload bool   `env:"CKD_ADMIN_RELOAD" help:"Let POST /-/reload on the admin address reload the policies. Without it the admin address changes nothing."`
	Pprof       string `default:"off" placeholder:"ADDR" env:"CKD_PPROF" help:"HTTP address of Go's profiler, or \"off\". (${default})"`
	Channelz    bool   `env:"CKD_CHANNELZ" help:"Serve gRPC's channelz beside the API, for looking into connections."`

	TraceEndpoint string  `default:"off" placeholder:"URL" env:"CKD_TRACE_ENDPOINT" help:"OpenTelemetry collector that spans of calls are sent to, http://HOST:PORT in plaintext or https://HOST:PORT, or \"off\". (${default})"`
	TraceSample   float64 `default:"0.01" placeholder:"SHARE" env:"CKD_TRACE_SAMPLE" help:"Share of the calls without a trace of their caller's that are traced. (${default})"`

	LogLevel  string `default:"info" enum:"debug,info,warn,error" env:"CKD_LOG_LEVEL" help:"Least level that is logged: ${enum}. (${default})"`
	LogFormat string `default:"json" enum:"json,console" env:"CKD_LOG_FORMAT" help:"Form of log lines: ${enum}. (${default})"`

	RecentInputs int `default:"0" placeholder:"N" env:"CKD_RECENT_INPUTS" help:"Deferred inputs of each model that the triage page shows, the last ones, at most 100, with the ids that clients gave them; 0 keeps none. (${default})"`

	ClassLabels int `default:"32" placeholder:"N" env:"CKD_CLASS_LABELS" help:"Classes with metrics of their own, critical ones first; the rest are counted together. (${default})"`

	ShutdownGrace time.Duration `default:"10s" placeholder:"TIME" env:"CKD_SHUTDOWN_GRACE" help:"How long open inputs may go on after SIGTERM, or when their stream has reached its age. (${default})"`

	MaxMessageBytes     int   `default:"16777216" placeholder:"N" env:"CKD_MAX_MESSAGE_BYTES" help:"Bytes of one message received. (${default})"`
	MaxStreams          int   `default:"1024" placeholder:"N" env:"CKD_MAX_STREAMS" help:"Streams open at one time. (${default})"`
	MaxCalls            int   `default:"128" placeholder:"N" env:"CKD_MAX_CALLS" help:"Unary calls under way at one time. (${default})"`
	MaxWatches          int   `default:"0" placeholder:"N" env:"CKD_MAX_WATCHES" help:"Watches of the health open at one time, of which a client that balances holds one a connection; 0 is as many as max-streams. (${default})"`
	MaxOpenInputs       int   `default:"4096" placeholder:"N" env:"CKD_MAX_OPEN_INPUTS" help:"Inputs open at one time on one stream. (${default})"`
	MaxOpenGroups       int   `default:"4096" placeholder:"N" env:"CKD_MAX_OPEN_GROUPS" help:"Groups open at one time on one stream. (${default})"`
	MaxInputsPerRequest int   `default:"65536" placeholder:"N" env:"CKD_MAX_INPUTS_PER_REQUEST" help:"Inputs in one unary request. (${default})"`
	MaxPasses           int   `default:"100000" placeholder:"N" env:"CKD_MAX_PASSES" help:"Passes of one input. (${default})"`
	MaxIDBytes          int   `default:"256" placeholder:"N" env:"CKD_MAX_ID_BYTES" help:"Bytes of one input id. (${default})"`
	MaxReplyBytes       int   `default:"16777216" placeholder:"N" env:"CKD_MAX_REPLY_BYTES" help:"Bytes, about, of one reply; bounds the inputs of a group or request by the detail asked for. (${default})"`
	MaxOpenBytes        int64 `default:"268435456" placeholder:"N" env:"CKD_MAX_OPEN_BYTES" help:"Bytes held by the open inputs of all streams. (${default})"`

	MaxClasses int `default:"10000" placeholder:"N" env:"CKD_MAX_CLASSES" help:"Classes of one model. (${default})"`

	CallTimeout      time.Duration `default:"1m" placeholder:"TIME" env:"CKD_CALL_TIMEOUT" help:"How long a unary call may take, from its headers to its answer. (${default})"`
	SendStallTimeout time.Duration `default:"30s" placeholder:"TIME" env:"CKD_SEND_STALL_TIMEOUT" help:"How long a client may leave results unread before its stream is ended. (${default})"`
	InputIdleTimeout time.Duration `default:"5m" placeholder:"TIME" env:"CKD_INPUT_IDLE_TIMEOUT" help:"How long an open input may be without passes before it fails. (${default})"`
	MaxStreamAge     time.Duration `default:"0s" placeholder:"TIME" env:"CKD_MAX_STREAM_AGE" help:"After this, give or take a twentieth, a stream takes no new inputs and ends, so that its client may open one elsewhere. 0 is never, which suits a sidecar. (${default})"`

	origin map[string]string // where a setting of the file stands
}

// Off is the address that means none.
const Off = "off"

// Validate reports every setting that is out of range, with where it was set.
// kong calls it.
func (c *Config) Validate() error {
	var faults []error
	fault := func(setting, format string, args ...any) {
		text := setting + ": " + fmt.Sprintf(format, args...)
		if at, ok := c.origin[setting]; ok {
			text = at + ": " + text
		}
		faults = append(faults, errors.New(text))
	}
	if len(c.Policy) == 0 {
		fault("policy", "none given, expected a policy file or a folder of them")
	}
	if len(c.Listen) == 0 {
		fault("listen", "none given, expected HOST:PORT or unix:PATH")
	}
	for _, address := range c.Listen {
		if reason := checkAddress(address); reason != "" {
			fault("listen", "%q: %s", address, reason)
		}
	}
	for _, http := range []struct{ setting, address string }{{"admin", c.Admin}, {"http", c.HTTP}, {"pprof", c.Pprof}} {
		if http.address == Off {
			continue
		}
		if strings.HasPrefix(http.address, "unix:") {
			fault(http.setting, "%q: expected HOST:PORT or %q", http.address, Off)
		} else if reason := checkAddress(http.address); reason != "" {
			fault(http.setting, "%q: %s", http.address, reason)
		}
	}
	c.checkExposure(fault)
	if c.TraceEndpoint != Off {
		if u, err := url.Parse(c.TraceEndpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			fault("trace-endpoint", "%q: expected http://HOST:PORT, https://HOST:PORT or %q", c.TraceEndpoint, Off)
		}
	}
	if !(c.TraceSample >= 0 && c.TraceSample <= 1) {
		fault("trace-sample", "%v, expected 0 to 1", c.TraceSample)
	}
	for _, r := range []struct {
		setting            string
		value, least, most time.Duration
	}{
		{"shutdown-grace", c.ShutdownGrace, 0, time.Hour},
		{"call-timeout", c.CallTimeout, 10 * time.Millisecond, time.Hour},
		{"send-stall-timeout", c.SendStallTimeout, 10 * time.Millisecond, time.Hour},
		{"input-idle-timeout", c.InputIdleTimeout, 10 * time.Millisecond, 24 * time.Hour},
		{"max-stream-age", c.MaxStreamAge, 0, 365 * 24 * time.Hour},
	} {
		if r.value < r.least || r.value > r.most {
			fault(r.setting, "%v, expected %v to %v", r.value, r.least, r.most)
		}
	}
	for _, r := range []struct {
		setting            string
		value, least, most int64
	}{
		{"class-labels", int64(c.ClassLabels), 1, 1024},
		{"recent-inputs", int64(c.RecentInputs), 0, 100},
		{"max-message-bytes", int64(c.MaxMessageBytes), 1 << 10, 1 << 30},
		{"max-streams", int64(c.MaxStreams), 1, 1 << 20},
		{"max-calls", int64(c.MaxCalls), 1, 1 << 20},
		{"max-watches", int64(c.MaxWatches), 0, 1 << 20},
		{"max-open-inputs", int64(c.MaxOpenInputs), 1, 1 << 24},
		{"max-open-groups", int64(c.MaxOpenGroups), 1, 1 << 24},
		{"max-inputs-per-request", int64(c.MaxInputsPerRequest), 1, 1 << 24},
		{"max-passes", int64(c.MaxPasses), 2, 1 << 30},
		{"max-id-bytes", int64(c.MaxIDBytes), 1, 1 << 16},
		{"max-open-bytes", c.MaxOpenBytes, 1 << 10, math.MaxInt64},
		{"max-reply-bytes", int64(c.MaxReplyBytes), 1 << 10, 1 << 30},
		{"max-classes", int64(c.MaxClasses), 2, 100_000},
	} {
		if r.value < r.least || r.value > r.most {
			fault(r.setting, "%d, expected %d to %d", r.value, r.least, r.most)
		}
	}
	return errors.Join(faults...)
}

// checkExposure refuses what would let anybody on the network read passes, forge
// decisions or change what the daemon does.
func (c *Config) checkExposure(fault func(setting, format string, args ...any)) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls-cert", "a certificate and its key go together, expected both tls-cert and tls-key")
	}
	for _, needs := range []struct{ setting, value, of, there string }{
		{"tls-client-ca", c.TLSClientCA, "tls-cert", c.TLSCert},
		{"tls-crl", c.TLSCRL, "tls-client-ca", c.TLSClientCA},
	} {
		if needs.value != "" && needs.there == "" {
			fault(needs.setting, "means nothing without %s", needs.of)
		}
	}
	if c.AdminTLS && c.TLSCert == "" {
		fault("admin-tls", "means nothing without tls-cert")
	}
	if c.InsecurePlaintext {
		return
	}
	const plaintext = "%s is beyond loopback and would be plaintext, where anybody on the way can read passes and forge decisions: " +
		"expected tls-cert and tls-key, an address on loopback, a unix socket, or insecure-plaintext to allow it all the same"
	if c.TLSCert == "" {
		for _, address := range c.Listen {
			if exposed(address) {
				fault("listen", plaintext, address)
			}
		}
		if exposed(c.HTTP) {
			fault("http", plaintext, c.HTTP)
		}
	}
	// Probes, metrics and the triage page may be for anybody: they change nothing and tell of no single input, unless the
	// page is to show some.
	if c.RecentInputs > 0 && exposed(c.Admin) && (!c.AdminTLS || c.Access == "") {
		fault("recent-inputs", "anybody who reaches %s could see ids of inputs: expected admin-tls and access, an address on loopback, "+
			"or insecure-plaintext to allow it all the same", c.Admin)
	}
	if c.AdminReload && exposed(c.Admin) && (!c.AdminTLS || c.Access == "") {
		fault("admin-reload", "anybody who reaches %s could reload the policies: expected admin-tls and access, an address on loopback, "+
			"or insecure-plaintext to allow it all the same", c.Admin)
	}
	if exposed(c.Pprof) {
		fault("pprof", "anybody who reaches %s could read the daemon's memory: expected an address on loopback, "+
			"or insecure-plaintext to allow it all the same", c.Pprof)
	}
}

// TokensInPlaintext reports whether a token that is sent to the admin address could be
// read on the way. InsecurePlaintext allows that for programs; people who are asked
// for a password cannot know.
func (c *Config) TokensInPlaintext() bool {
	return c.Access != "" && exposed(c.Admin) && !c.AdminTLS
}

// exposed reports whether others than this machine's processes may reach an
// address. Of names, only localhost is known to be the machine's own.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || strings.HasPrefix(address, "unix:") { // err: off, or no address
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback()
}

// checkAddress says what is wrong with a listening address.
func checkAddress(address string) string {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "expected a path after unix:"
		}
		return ""
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "expected HOST:PORT or unix:PATH"
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Sprintf("%q is no port", port)
	}
	return ""
}

// Default is the settings where no flag or file says otherwise: they lack a
// policy.
func Default() (*Config, error) {
	c := Config{Policy: []string{"none"}}
	err := kong.ApplyDefaults(&c)
	c.Policy = nil
	return &c, err
}

// Changed returns the settings that are not at their defaults, by name. Settings name
// files that hold secrets; what is in these files is not among them, nor is a password
// in a URL.
func (c *Config) Changed() (map[string]any, error) {
	is, err := kong.New(c)
	if err != nil {
		return nil, err
	}
	usual, err := kong.New(&Config{})
	if err != nil {
		return nil, err
	}
	changed := map[string]any{}
	for i, flag := range is.Model.Flags {
		before := usual.Model.Flags[i]
		before.Tag.Envs = nil // these are settings too
		if err := before.Reset(); err != nil {
			return nil, err
		}
		if value := flag.Target.Interface(); !reflect.DeepEqual(value, before.Target.Interface()) {
			changed[flag.Name] = shown(value)
		}
	}
	return changed, nil
}

// shown returns the value of a setting as people may read it.
func shown(value any) any {
	switch value := value.(type) {
	case time.Duration:
		return value.String()
	case string:
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() // without a password, or a token in the query
		}
	}
	return value
}
