package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Config holds every setting of the daemon, as kong fills it. Its parts check themselves; what
// depends on several parts, Validate checks.
type Config struct {
	File string `name:"config" type:"path" placeholder:"FILE" env:"CKD_CONFIG" help:"YAML file of settings: its keys are the names of these flags. For who keeps settings beside the policies."`

	Policy []string `placeholder:"PATH" env:"CKD_POLICY" help:"Policy files, or folders of them. Required, and the one thing that everybody sets."`

	Addresses
	Security
	Outcomes
	Debugging
	Tracing
	Logging
	Metrics
	Limits

	// Unusable lists environment variables that count as not set.
	Unusable []Unusable `kong:"-"`

	origin map[string]strictyaml.Fault // the places of the file's settings: faults without a reason
}

// Addresses holds where the daemon listens.
type Addresses struct {
	Listen []string `default:"127.0.0.1:8590" placeholder:"ADDR" env:"CKD_LISTEN" help:"gRPC addresses: HOST:PORT or unix:PATH. Port 0 takes a free one. Set it for clients in other containers or on other machines. (${default})"`
	Admin  string   `default:"127.0.0.1:9590" placeholder:"ADDR" env:"CKD_ADMIN" help:"HTTP address of triage page, metrics and probes, or \"off\". Set it where probes or Prometheus come from elsewhere. (${default})"`
	HTTP   string   `name:"http" default:"off" placeholder:"ADDR" env:"CKD_HTTP" help:"HTTP address of the API as JSON and of the Open Inference Protocol's REST form, or \"off\". Set it for clients without gRPC. (${default})"`
}

// Security holds who the daemon is, and who may call it.
type Security struct {
	TLSCert     string `name:"tls-cert" type:"path" placeholder:"FILE" env:"CKD_TLS_CERT" help:"PEM file of the certificate and its intermediates. gRPC over TCP and the http address then use TLS. Set it before the daemon listens beyond loopback. Files are read again when they change."`
	TLSKey      string `name:"tls-key" type:"path" placeholder:"FILE" env:"CKD_TLS_KEY" help:"PEM file of the certificate's key: set it with tls-cert."`
	TLSClientCA string `name:"tls-client-ca" type:"path" placeholder:"FILE" env:"CKD_TLS_CLIENT_CA" help:"PEM file of the CAs of clients. Clients then need a certificate (mTLS): set it where certificates say who calls."`
	TLSCRL      string `name:"tls-crl" type:"path" placeholder:"FILE" env:"CKD_TLS_CRL" help:"PEM file of the CAs' revocation lists: set it if they publish some."`
	AdminTLS    bool   `name:"admin-tls" env:"CKD_ADMIN_TLS" help:"TLS on the admin address too: probes and scrapes then need it. Set it where people use the triage page over a network."`
	Access      string `type:"path" placeholder:"FILE" env:"CKD_ACCESS" help:"YAML file of identities: who may call what. Every call but health then needs one. Set it where teams share a daemon."`

	InsecurePlaintext bool `env:"CKD_INSECURE_PLAINTEXT" help:"Allow addresses beyond loopback without TLS: whoever is on the network can then read passes and forge decisions. Set it only where a mesh encrypts."`
}

// Outcomes holds the keys of receipts, and where outcomes are kept.
type Outcomes struct {
	ReceiptKeys string `type:"path" placeholder:"FILE" env:"CKD_RECEIPT_KEYS" help:"File of the keys of receipts, 32 bytes a line in hex or base64: the first seals, all open. Set it to audit, or to learn outcomes: without it clients cannot have receipts. It is read again when it changes."`

	Ledger      string `type:"path" placeholder:"DIR" env:"CKD_LEDGER" help:"Folder of the ledger of outcomes, which this daemon then keeps for the whole fleet. Set it on one daemon. Needs receipt-keys."`
	LedgerAt    string `placeholder:"ADDR" env:"CKD_LEDGER_AT" help:"Address of the daemon that keeps the ledger: host:port or unix:PATH. This daemon tells it what it issued, and reads back whether policies keep their promise. Set it on all others."`
	LedgerCA    string `name:"ledger-ca" type:"path" placeholder:"FILE" env:"CKD_LEDGER_CA" help:"PEM file of the authorities that the ledger's certificate must be from. ledger-at then uses TLS, and shows tls-cert if there is one."`
	LedgerToken string `type:"path" placeholder:"FILE" env:"CKD_LEDGER_TOKEN" help:"File with the bearer token to present to the ledger: set it where that daemon has an access file."`
	LedgerState string `type:"path" placeholder:"FILE" env:"CKD_LEDGER_STATE" help:"File that keeps which ledger this daemon knows and what it said last: known alarms then outlive a restart, whatever became of the ledger. What the daemon issued is kept beside it. Set it for policies with on_breach: defer."`
}

// Debugging holds what helps people to look into the daemon, or to change it.
type Debugging struct {
	Pprof string `default:"off" placeholder:"ADDR" env:"CKD_PPROF" help:"HTTP address of Go's profiler, or \"off\". Set it, on loopback, to see what the daemon spends CPU or memory on. (${default})"`
}

// Tracing holds where spans of calls go.
type Tracing struct {
	TraceEndpoint string  `default:"off" placeholder:"URL" env:"CKD_TRACE_ENDPOINT,OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" help:"OpenTelemetry collector that spans of calls are sent to, http://HOST:PORT in plaintext or https://HOST:PORT, or \"off\". Set it where callers trace. (${default})"`
	TraceSample   float64 `default:"0.01" placeholder:"SHARE" env:"CKD_TRACE_SAMPLE" help:"Share of calls to trace among those without a trace from their caller. Raise it while looking for something. (${default})"`
}

// Logging holds what is logged, and how.
type Logging struct {
	LogLevel  string `default:"info" enum:"debug,info,warn,error" env:"CKD_LOG_LEVEL" help:"Lowest level that is logged: ${enum}. Set debug to see every call. (${default})"`
	LogFormat string `default:"json" enum:"json,console" env:"CKD_LOG_FORMAT" help:"Form of log lines: ${enum}. Set console to read them yourself. (${default})"`

	DecisionLog string `default:"off" placeholder:"FILE" env:"CKD_DECISION_LOG" help:"File for JSON lines about decisions; or \"stdout\", or \"off\". Set it to say later what was decided, and why: policies say of which inputs. It never delays a decision; what it cannot write is lost, and counted. (${default})"`
}

// Metrics holds what the triage page and the metrics show.
type Metrics struct {
	RecentInputs int    `default:"0" placeholder:"N" env:"CKD_RECENT_INPUTS" help:"Last inputs of each model that the triage page shows, with the ids that clients gave them: deferred, or to be reviewed. At most 1000; 0 keeps none. Set it where people review on the page. (${default})"`
	CaseURL      string `name:"case-url" placeholder:"TEMPLATE" env:"CKD_CASE_URL" help:"Link from the list to review to an input: an http or https address in which {id} stands for the id, as in https://pacs.example/{id}. Needs recent-inputs."`

	ClassLabels  int  `default:"16" placeholder:"N" env:"CKD_CLASS_LABELS" help:"Classes of a model with metrics of their own, critical ones first; the rest are counted together. Raise it if you watch more classes by name. (${default})"`
	ClassBuckets bool `env:"CKD_CLASS_BUCKETS" help:"Classic buckets in the histograms by class, beside native ones: 24 more series for each class. Set it if your Prometheus takes no native histograms and you want their quantiles."`
}

// Limits holds what clients may use, and for how long.
type Limits struct {
	MaxOpenBytes             int64 `default:"134217728" placeholder:"N" env:"CKD_MAX_OPEN_BYTES" help:"Bytes that open inputs, requests and unread replies of all clients may hold; one unary call may be under way for each MiB, 16 to 1024. Raise it, with the container's memory, for large inputs or many callers; lower it in a small sidecar. (${default})"`
	MaxMessageBytes          int   `default:"0" placeholder:"N" env:"CKD_MAX_MESSAGE_BYTES" help:"Bytes of one message received. 0 means room for 64 inputs of each model, within an eighth of max-open-bytes, and at least 512 KiB. Raise it for a client that sends larger batches at once. (${default})"`
	MaxStreams               int   `default:"512" placeholder:"N" env:"CKD_MAX_STREAMS" help:"Streams open at one time, and as many health watches. Raise it for more workers than that on one daemon; lower it in a small sidecar. (${default})"`
	MaxConnections           int   `default:"0" placeholder:"N" env:"CKD_MAX_CONNECTIONS" help:"Connections of clients over gRPC and HTTP together. 0 means the limit on open files less 128, and at most 1024. Raise it for a fleet of more clients without a mesh. (${default})"`
	MaxConnectionsPerAddress int   `default:"0" placeholder:"N" env:"CKD_MAX_CONNECTIONS_PER_ADDRESS" help:"Connections from one IP address. Set it where clients without identities reach the daemon directly. 0 means no limit, as a proxy has one address. (${default})"`

	ShutdownGrace    time.Duration `default:"10s" placeholder:"TIME" env:"CKD_SHUTDOWN_GRACE" help:"How long open inputs may go on after SIGTERM, or when their stream has reached its age. Raise it, with the pod's own grace, where passes take longer. (${default})"`
	InputIdleTimeout time.Duration `default:"5m" placeholder:"TIME" env:"CKD_INPUT_IDLE_TIMEOUT" help:"How long an open input may be without passes before it fails. Raise it where a model takes longer between passes. (${default})"`
	MaxStreamAge     time.Duration `default:"0s" placeholder:"TIME" env:"CKD_MAX_STREAM_AGE" help:"Age at which a stream takes no new inputs and ends, give or take a twentieth, so that its client can open one elsewhere. Set it with several replicas; 0 means never, which suits a sidecar. (${default})"`
}

// Off turns an address off.
const Off = "off"

// reporter reports what is wrong with a setting.
type reporter func(setting, format string, args ...any)

// Validate reports every setting that is out of range, with where it was set. kong calls it.
func (c *Config) Validate() error {
	var faults strictyaml.Faults
	report := func(setting, format string, args ...any) {
		f := c.origin[setting]
		f.Field, f.Reason = setting, fmt.Sprintf(format, args...)
		faults = append(faults, f)
	}
	if len(c.Policy) == 0 {
		report("policy", "none given, expected a policy file or a folder of them")
	}
	for _, part := range []interface{ check(reporter) }{
		&c.Addresses, &c.Security, &c.Outcomes, &c.Debugging, &c.Tracing, &c.Metrics, &c.Limits,
	} {
		part.check(report)
	}
	c.checkExposure(report)
	return faults.Err()
}

func (a *Addresses) check(report reporter) {
	if len(a.Listen) == 0 {
		report("listen", "none given, expected HOST:PORT or unix:PATH")
	}
	for _, address := range a.Listen {
		if reason := checkAddress(address); reason != "" {
			report("listen", "%q: %s", address, reason)
		}
	}
	checkHTTP("admin", a.Admin, report)
	checkHTTP("http", a.HTTP, report)
}

func (s *Security) check(report reporter) {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		report("tls-cert", "a certificate and its key go together, expected both tls-cert and tls-key")
	}
	for _, c := range []struct{ setting, value, needs, needed string }{
		{"tls-client-ca", s.TLSClientCA, "tls-cert", s.TLSCert},
		{"tls-crl", s.TLSCRL, "tls-client-ca", s.TLSClientCA},
	} {
		if c.value != "" && c.needed == "" {
			report(c.setting, "means nothing without %s", c.needs)
		}
	}
	if s.AdminTLS && s.TLSCert == "" {
		report("admin-tls", "means nothing without tls-cert")
	}
}

func (o *Outcomes) check(report reporter) {
	if o.Ledger != "" && o.LedgerAt != "" {
		report("ledger-at", "a daemon keeps the ledger or tells another one, expected either ledger or ledger-at")
	}
	if o.Ledger != "" && o.ReceiptKeys == "" {
		report("ledger", "cannot open receipts, expected receipt-keys beside it")
	}
	for setting, value := range map[string]string{"ledger-ca": o.LedgerCA, "ledger-token": o.LedgerToken} {
		if value != "" && o.LedgerAt == "" {
			report(setting, "means nothing without ledger-at")
		}
	}
	if o.LedgerState != "" && o.Ledger == "" && o.LedgerAt == "" {
		report("ledger-state", "means nothing without ledger or ledger-at")
	}
}

func (d *Debugging) check(report reporter) { checkHTTP("pprof", d.Pprof, report) }

func (t *Tracing) check(report reporter) {
	if t.TraceEndpoint != Off && !isEndpoint(t.TraceEndpoint) {
		report("trace-endpoint", "%q: expected http://HOST:PORT, https://HOST:PORT or %q", t.TraceEndpoint, Off)
	}
	if !(t.TraceSample >= 0 && t.TraceSample <= 1) {
		report("trace-sample", "%v, expected 0 to 1", t.TraceSample)
	}
}

func (m *Metrics) check(report reporter) {
	inRange(report, "class-labels", m.ClassLabels, 1, 1024)
	inRange(report, "recent-inputs", m.RecentInputs, 0, 1000)
	if m.CaseURL == "" {
		return
	}
	if reason := checkCaseURL(m.CaseURL); reason != "" {
		report("case-url", "%q: %s", m.CaseURL, reason)
	} else if m.RecentInputs == 0 {
		report("case-url", "means nothing without recent-inputs")
	}
}

func (l *Limits) check(report reporter) {
	inRange(report, "shutdown-grace", l.ShutdownGrace, 0, time.Hour)
	inRange(report, "input-idle-timeout", l.InputIdleTimeout, 10*time.Millisecond, 24*time.Hour)
	inRange(report, "max-stream-age", l.MaxStreamAge, 0, 365*24*time.Hour)
	if l.MaxMessageBytes != 0 {
		inRange(report, "max-message-bytes", l.MaxMessageBytes, 1<<10, 1<<30)
	}
	inRange(report, "max-streams", l.MaxStreams, 1, 1<<20)
	inRange(report, "max-connections", l.MaxConnections, 0, 1<<20)
	inRange(report, "max-connections-per-address", l.MaxConnectionsPerAddress, 0, 1<<20)
	inRange(report, "max-open-bytes", l.MaxOpenBytes, 1<<10, math.MaxInt64)
}

// checkCaseURL returns what is wrong with a template of links to inputs; empty for nothing. Whoever names
// inputs must not choose where a link leads.
func checkCaseURL(template string) string {
	const id, stands = "{id}", "ckd-id-of-an-input"
	u, err := url.Parse(strings.ReplaceAll(template, id, stands))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "expected an address that begins with http:// or https://"
	case !strings.Contains(template, id):
		return "expected {id} where the id of an input goes"
	case strings.Contains(u.Host, stands) || u.User != nil:
		return "expected a host without {id}, user or password"
	}
	return ""
}

// inRange reports a value that is not from least to most.
func inRange[T int | int64 | time.Duration](report reporter, setting string, value, least, most T) {
	if value < least || value > most {
		report(setting, "%v, expected %v to %v", value, least, most)
	}
}

// checkHTTP reports an HTTP address that is neither HOST:PORT nor off.
func checkHTTP(setting, address string, report reporter) {
	if address == Off {
		return
	}
	if strings.HasPrefix(address, "unix:") {
		report(setting, "%q: expected HOST:PORT or %q", address, Off)
	} else if reason := checkAddress(address); reason != "" {
		report(setting, "%q: %s", address, reason)
	}
}

// checkExposure reports settings that would let anybody on the network read passes, forge
// decisions or change what the daemon does.
func (c *Config) checkExposure(report reporter) {
	if c.InsecurePlaintext {
		return
	}
	const plaintext = "%s is beyond loopback and would be plaintext, where anybody on the way can read passes and forge decisions: " +
		"expected tls-cert and tls-key, an address on loopback, a unix socket, or insecure-plaintext to allow it all the same"
	if c.TLSCert == "" {
		for _, address := range c.Listen {
			if exposed(address) {
				report("listen", plaintext, address)
			}
		}
		if exposed(c.HTTP) {
			report("http", plaintext, c.HTTP)
		}
	}
	// Probes, metrics and the triage page are for anybody: they change nothing and show no single input, unless the
	// settings say otherwise.
	if exposed(c.Admin) && (!c.AdminTLS || c.Access == "") {
		const open = "anybody who reaches %s could %s: expected admin-tls and access, an address on loopback, " +
			"or insecure-plaintext to allow it all the same"
		if c.RecentInputs > 0 {
			report("recent-inputs", open, c.Admin, "see ids of inputs")
		}
	}
	if exposed(c.Pprof) {
		report("pprof", "anybody who reaches %s could read the daemon's memory: expected an address on loopback, "+
			"or insecure-plaintext to allow it all the same", c.Pprof)
	}
}

// TokensInPlaintext reports whether a token sent to the admin address could be read on the way.
// InsecurePlaintext allows that for programs. People who are asked for a password cannot know it.
func (c *Config) TokensInPlaintext() bool {
	return c.Access != "" && exposed(c.Admin) && !c.AdminTLS
}

// exposed reports whether other machines may reach an address. Of all host names, only localhost is
// known to be this machine.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || strings.HasPrefix(address, "unix:") { // an error means off, or no address
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback()
}

// mostSocketPath is how many bytes the path of a unix socket may have: the system's own message for more
// is "invalid argument".
const mostSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// checkAddress returns what is wrong with a listening address; empty for nothing.
func checkAddress(address string) string {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		switch {
		case path == "":
			return "expected a path after unix:"
		case len(path) > mostSocketPath:
			return fmt.Sprintf("a path of %d bytes, expected at most %d, which is the system's limit for sockets: "+
				"a shorter one, or one relative to the working directory", len(path), mostSocketPath)
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

// Default returns the settings where no flag or file says otherwise. They lack a policy.
func Default() (*Config, error) {
	c := Config{Policy: []string{"none"}, Unusable: CleanEnvironment()}
	err := kong.ApplyDefaults(&c)
	c.Policy = nil
	return &c, err
}

// Changed returns the settings that are not at their defaults, by name. It returns the names of
// files but never what they hold, which may be secret, and it removes passwords from URLs.
func (c *Config) Changed() (map[string]any, error) {
	parser, err := kong.New(c)
	if err != nil {
		return nil, err
	}
	usual, err := kong.New(&Config{})
	if err != nil {
		return nil, err
	}
	changed := map[string]any{}
	for i, flag := range parser.Model.Flags {
		before := usual.Model.Flags[i]
		before.Tag.Envs = nil // the environment also sets values
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
