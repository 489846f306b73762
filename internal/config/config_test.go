package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/config"
)

// parse reads a command line as ckd serve does.
func parse(args ...string) (*config.Config, error) {
	var cli struct {
		Serve struct{ config.Config } `cmd:""`
	}
	parser, err := kong.New(&cli, kong.Exit(func(int) {}))
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse(append([]string{"serve"}, args...))
	return &cli.Serve.Config, err
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefault(t *testing.T) {
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Listen, []string{"127.0.0.1:8590"}) || c.Admin != "127.0.0.1:9590" || c.MaxStreams != 512 ||
		c.ShutdownGrace != 10*time.Second || len(c.Policy) != 0 {
		t.Errorf("defaults %+v", c)
	}
	c.Policy = []string{"p.yaml"}
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
}

// TestChanged checks that Changed returns the settings that differ from their defaults, however
// they were set, and no secret.
func TestChanged(t *testing.T) {
	path := write(t, "policy: [p.yaml]\nmax-streams: 64\nmax-open-bytes: 134217728\n")
	t.Setenv("CKD_LOG_LEVEL", "warn")
	c, err := parse("--config", path, "--shutdown-grace", "1500ms", "--trace-endpoint", "https://me:secret@collector:4317/v1?token=secret", "--class-buckets")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Changed()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"config": path, "policy": []string{"p.yaml"}, "max-streams": 64, "log-level": "warn", "shutdown-grace": "1.5s",
		"trace-endpoint": "https://collector:4317", "class-buckets": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestPrecedence checks the order: flag, environment, file, default.
func TestPrecedence(t *testing.T) {
	path := write(t, `
policy: [a.yaml, "b,c.yaml"]
pprof: 127.0.0.1:6
class-buckets: true
listen:
  - 127.0.0.1:1
  - unix:/tmp/x.sock
max-streams: 7
max-open-bytes: 8192
max-connections: 9
shutdown-grace: 3s
log-level: warn
`)
	t.Setenv("CKD_CONFIG", path)
	t.Setenv("CKD_MAX_OPEN_BYTES", "80000")
	t.Setenv("CKD_MAX_CONNECTIONS", "90")
	c, err := parse("--max-connections", "900")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Policy, []string{"a.yaml", "b,c.yaml"}) || len(c.Listen) != 2 || c.MaxStreams != 7 || c.MaxOpenBytes != 80_000 ||
		c.MaxConnections != 900 || c.ShutdownGrace != 3*time.Second || c.LogLevel != "warn" || c.Pprof != "127.0.0.1:6" || !c.ClassBuckets || c.ClassLabels != 16 {
		t.Errorf("got %+v", c)
	}
}

// TestExposure checks that a setting which would let in anybody on the network is refused with its
// own cause, unless the flag named for the risk is given.
func TestExposure(t *testing.T) {
	const everywhere, tls = "0.0.0.0:1", "--tls-cert=c --tls-key=k"
	for _, c := range []struct {
		args string
		want string // empty: it is allowed
	}{
		{"--listen " + everywhere, "listen: 0.0.0.0:1 is beyond loopback and would be plaintext"},
		{"--listen :1", "listen: :1 is beyond"},
		{"--listen [::]:1", "listen: [::]:1 is beyond"},
		{"--listen 10.0.0.1:1", "listen: 10.0.0.1:1 is beyond"},
		{"--listen db.example:1", "listen: db.example:1 is beyond"},
		{"--listen 127.0.0.1:1,0.0.0.0:2", "listen: 0.0.0.0:2 is beyond"},
		{"--listen localhost:1", ""},
		{"--listen [::1]:1", ""},
		{"--listen 127.8.9.10:1", ""},
		{"--listen [::ffff:127.0.0.1]:1", ""},
		{"--listen unix:/run/ckd.sock", ""},
		{"--listen " + everywhere + " " + tls, ""},
		{"--listen " + everywhere + " --access a", "listen: 0.0.0.0:1 is beyond"}, // tokens would be plaintext too
		{"--listen " + everywhere + " --insecure-plaintext", ""},
		{"--http " + everywhere, "http: 0.0.0.0:1 is beyond loopback"},
		{"--http 127.0.0.1:1", ""},
		{"--http " + everywhere + " " + tls, ""},
		{"--admin " + everywhere, ""},
		{"--admin " + everywhere + " --recent-inputs 5", "recent-inputs: anybody who reaches 0.0.0.0:1 could see ids"},
		{"--admin " + everywhere + " --recent-inputs 5 --admin-tls " + tls, "recent-inputs: anybody"},
		{"--admin " + everywhere + " --recent-inputs 5 --access a " + tls, "recent-inputs: anybody"},
		{"--admin " + everywhere + " --recent-inputs 5 --admin-tls --access a " + tls, ""},
		{"--admin " + everywhere + " --recent-inputs 5 --insecure-plaintext", ""},
		{"--admin 127.0.0.1:1 --recent-inputs 5", ""},
		{"--recent-inputs 1001", "recent-inputs: 1001, expected 0 to 1000"},
		{"--recent-inputs 5 --case-url https://pacs.example/case?id={id}&view=1", ""},
		{"--recent-inputs 5 --case-url http://127.0.0.1:8080/{id}", ""},
		{"--case-url https://pacs.example/{id}", "case-url: means nothing without recent-inputs"},
		{"--recent-inputs 5 --case-url https://pacs.example/", "expected {id} where"},
		{"--recent-inputs 5 --case-url javascript:alert({id})", "expected an address that begins with http:// or https://"},
		{"--recent-inputs 5 --case-url /case/{id}", "expected an address that begins with http:// or https://"},
		{"--recent-inputs 5 --case-url https://{id}.example/", "expected a host without {id}, user or password"},
		{"--recent-inputs 5 --case-url https://me:secret@pacs.example/{id}", "expected a host without {id}, user or password"},
		{"--pprof " + everywhere, "pprof: anybody who reaches 0.0.0.0:1 could read"},
		{"--pprof " + everywhere + " " + tls, "pprof: anybody"},
		{"--tls-cert c", "tls-cert: a certificate and its key go together"},
		{"--tls-key k", "tls-cert: a certificate and its key go together"},
		{"--tls-client-ca c", "tls-client-ca: means nothing without tls-cert"},
		{"--tls-crl c " + tls, "tls-crl: means nothing without tls-client-ca"},
		{"--admin-tls", "admin-tls: means nothing without tls-cert"},
		{"--ledger d", "ledger: cannot open receipts"},
		{"--ledger d --receipt-keys k", ""},
		{"--ledger d --receipt-keys k --ledger-at localhost:1", "ledger-at: a daemon keeps the ledger or tells another one"},
		{"--ledger-state f", "ledger-state: means nothing without ledger or ledger-at"},
	} {
		t.Run(c.args, func(t *testing.T) {
			_, err := parse(append([]string{"--policy", "p.yaml"}, strings.Fields(c.args)...)...)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestOneForAList checks that a list of one may be written as a text.
func TestOneForAList(t *testing.T) {
	c, err := parse("--config", write(t, "policy: a,b.yaml\n"))
	if err != nil || !slices.Equal(c.Policy, []string{"a,b.yaml"}) {
		t.Errorf("got %v, %v", c.Policy, err)
	}
}

// TestFaults checks that all faults are reported at once, each with its place.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"many in the file": {
			"policy: {a: b}\nmax-streems: 5\nmax-connections: lots\nlog-level: loud\nshutdown-grace: soon\n", nil,
			[]string{":1:9: policy: ", `:2:1: max-streems: `, `did you mean "max-streams"?`, ":3:18: max-connections: ", ":4:12: log-level: ", ":5:17: shutdown-grace: "},
		},
		"out of range": {
			"policy: [p.yaml]\nmax-streams: 0\nmax-message-bytes: 5\n", []string{"--max-open-bytes", "1"},
			[]string{":2:14: max-streams: 0, expected 1 to 1048576", ":3:20: max-message-bytes: 5, expected 1024", "max-open-bytes: 1, expected 1024"},
		},
		"addresses":     {"policy: [p.yaml]\nlisten: [here, 'unix:', '127.0.0.1:notaport']\nadmin: unix:/x\n", nil, []string{`:2:9: listen: "here": expected HOST:PORT`, `"unix:": expected a path`, `"notaport" is no port`, `:3:8: admin: "unix:/x"`}},
		"no mapping":    {"- a\n", nil, []string{":1:1: "}},
		"not yaml":      {"a: [\n", nil, []string{"not YAML"}},
		"empty":         {"", nil, []string{":1:1: empty"}},
		"no policy":     {"max-streams: 5\n", nil, []string{"policy: none given"}},
		"decimal comma": {"policy: [p.yaml]\ntrace-sample: 0,05\n", nil, []string{":2:15: trace-sample: ", "(a decimal comma? write 0.05)"}},
		"config":        {"policy: [p.yaml]\nconfig: other.yaml\n", nil, []string{":2:1: config: "}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.file)
			_, err := parse(append([]string{"--config", path}, c.args...)...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if strings.HasPrefix(part, ":") {
					part = path + part
				}
				if !strings.Contains(err.Error(), part) {
					t.Errorf("lacks %q:\n%v", part, err)
				}
			}
		})
	}
	if _, err := parse("--config", "nowhere.yaml", "--policy", "x"); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestStandardVariables checks that OpenTelemetry's own variables count, and that ours and flags win.
func TestStandardVariables(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317")
	read := func(args ...string) *config.Config {
		t.Helper()
		c, err := parse(append([]string{"--policy", "p.yaml"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := read(); c.TraceEndpoint != "http://all:4317" {
		t.Errorf("%s, want the one of all", c.TraceEndpoint)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317")
	if c := read(); c.TraceEndpoint != "http://traces:4317" {
		t.Errorf("%s, want the one of traces", c.TraceEndpoint)
	}
	t.Setenv("CKD_TRACE_ENDPOINT", "http://ours:4317")
	if c := read(); c.TraceEndpoint != "http://ours:4317" {
		t.Errorf("%s, want ours", c.TraceEndpoint)
	}
	if c := read("--trace-endpoint", "off"); c.TraceEndpoint != config.Off {
		t.Errorf("%s, want the flag", c.TraceEndpoint)
	}
}

// TestUnusableEnvironment checks that variables which a cluster sets for everyone, or a template
// leaves empty, are passed over with a warning. Each of them stopped the daemon of somebody whose
// platform team had set it, or sent spans where nobody takes them; none shows a secret.
func TestUnusableEnvironment(t *testing.T) {
	const endpoint, secret = "OTEL_EXPORTER_OTLP_ENDPOINT", "s3cr3t"
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		set  []string // NAME=VALUE
		want []string // variables that are warned of
		left string   // NAME=VALUE afterwards; no value means that the variable is gone
	}{
		{[]string{endpoint + "=collector:4317"}, []string{endpoint}, endpoint},
		{[]string{endpoint + "=me:" + secret + "@collector:4317"}, []string{endpoint}, endpoint},
		{[]string{endpoint + "=grpc://collector:4317?token=" + secret}, []string{endpoint}, endpoint},
		{[]string{endpoint + "=unix:///run/otel.sock"}, []string{endpoint}, endpoint},
		{[]string{endpoint + "=http://collector:port"}, []string{endpoint}, endpoint},
		{[]string{endpoint + `="http://collector:4317"`}, []string{endpoint}, endpoint}, // a file of docker --env-file
		{[]string{endpoint + "= http://collector:4317 "}, nil, endpoint + "=http://collector:4317"},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=", endpoint + "=http://c:1"}, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}, endpoint + "=http://c:1"},

		{[]string{"OTEL_SDK_DISABLED=true", endpoint + "=http://c:1"}, []string{endpoint}, endpoint},
		{[]string{"OTEL_SDK_DISABLED=1", endpoint + "=http://c:1"}, nil, endpoint + "=http://c:1"},
		{[]string{"OTEL_TRACES_EXPORTER=none", endpoint + "=http://c:1"}, []string{endpoint}, endpoint},
		{[]string{"OTEL_TRACES_EXPORTER=console, otlp", endpoint + "=http://c:1"}, nil, endpoint + "=http://c:1"},
		{[]string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", endpoint + "=http://c:4318"}, []string{endpoint}, endpoint},
		{[]string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc", endpoint + "=http://c:1"}, nil, endpoint + "=http://c:1"},
		{[]string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http", endpoint + "=http://c:1"}, []string{endpoint}, endpoint},

		{[]string{"OTEL_EXPORTER_OTLP_HEADERS=Bearer " + secret}, []string{"OTEL_EXPORTER_OTLP_HEADERS"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		{[]string{"OTEL_EXPORTER_OTLP_HEADERS=a=%zz" + secret + ",b=" + secret}, []string{"OTEL_EXPORTER_OTLP_HEADERS"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		{[]string{"OTEL_EXPORTER_OTLP_HEADERS=a=%0A" + secret}, []string{"OTEL_EXPORTER_OTLP_HEADERS"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		{[]string{"OTEL_EXPORTER_OTLP_HEADERS=x y=" + secret}, []string{"OTEL_EXPORTER_OTLP_HEADERS"}, "OTEL_EXPORTER_OTLP_HEADERS"},
		{[]string{"OTEL_EXPORTER_OTLP_HEADERS=a=b,c=" + secret}, nil, "OTEL_EXPORTER_OTLP_HEADERS=a=b,c=" + secret},
		{[]string{"OTEL_RESOURCE_ATTRIBUTES=team,a=b"}, []string{"OTEL_RESOURCE_ATTRIBUTES"}, "OTEL_RESOURCE_ATTRIBUTES"},
		{[]string{"OTEL_RESOURCE_ATTRIBUTES=a=b, c=d"}, nil, "OTEL_RESOURCE_ATTRIBUTES=a=b, c=d"},
		{[]string{"OTEL_SERVICE_NAME=\xff"}, []string{"OTEL_SERVICE_NAME"}, "OTEL_SERVICE_NAME"}, // protobuf takes no such text
		{[]string{"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere.pem"}, []string{"OTEL_EXPORTER_OTLP_CERTIFICATE"}, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{[]string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + fifo}, []string{"OTEL_EXPORTER_OTLP_CERTIFICATE"}, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{[]string{"OTEL_BSP_MAX_QUEUE_SIZE=-1"}, nil, "OTEL_BSP_MAX_QUEUE_SIZE"}, // a panic of the SDK
		{[]string{"OTEL_TRACES_SAMPLER=always_on"}, nil, "OTEL_TRACES_SAMPLER"},

		{[]string{"CKD_MAX_STREAMS="}, []string{"CKD_MAX_STREAMS"}, "CKD_MAX_STREAMS"},
		{[]string{"CKD_ADMIN= ", "CKD_SHUTDOWN_GRACE=", "CKD_CLASS_BUCKETS=", "CKD_CONFIG=", "CKD_LOG_LEVEL="},
			[]string{"CKD_ADMIN", "CKD_CLASS_BUCKETS", "CKD_CONFIG", "CKD_LOG_LEVEL", "CKD_SHUTDOWN_GRACE"}, "CKD_ADMIN"},
		{[]string{"CKD_TRACE_ENDPOINT=", endpoint + "=http://c:1"}, []string{"CKD_TRACE_ENDPOINT"}, endpoint + "=http://c:1"},
	} {
		t.Run(strings.Join(c.set, " "), func(t *testing.T) {
			for _, variable := range c.set {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			settings, err := parse("--policy", "p.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var warned []string
			for _, u := range settings.Unusable {
				warned = append(warned, u.Variable)
				if u.Expected == "" || strings.Contains(u.Value, secret) {
					t.Errorf("%+v shows the secret, or not what was expected", u)
				}
			}
			if slices.Sort(warned); !slices.Equal(warned, c.want) {
				t.Errorf("warned of %v, want %v", warned, c.want)
			}
			name, want, there := strings.Cut(c.left, "=")
			if is, isSet := os.LookupEnv(name); isSet != there || is != want {
				t.Errorf("%s=%q is set: %t, want %q", name, is, isSet, c.left)
			}
			if (settings.TraceEndpoint != config.Off) != (name == endpoint && there) {
				t.Errorf("spans go to %s", settings.TraceEndpoint)
			}
		})
	}
	t.Run("ours", func(t *testing.T) { // a wrong value of our own stops the start
		t.Setenv("CKD_TRACE_ENDPOINT", "collector:4317")
		if _, err := parse("--policy", "p.yaml"); err == nil || !strings.Contains(err.Error(), "trace-endpoint") {
			t.Errorf("%v, want a fault of trace-endpoint", err)
		}
	})
}
