package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Unusable describes an environment variable that counts as not set, or a list in it whose bad items
// do.
type Unusable struct {
	Variable string
	Value    string // without what may be secret
	Expected string
}

// CleanEnvironment removes variables that must not stop a daemon, and returns them: CKD_ variables
// that are empty, as templates leave them, and OTEL_ variables that cannot be used, since clusters set
// those for all their programs. Call it before anything reads the environment: OpenTelemetry's SDK
// ignores some of these values without a word, prints the secrets of others, and panics at yet others.
func CleanEnvironment() []Unusable {
	var found []Unusable
	for _, variable := range os.Environ() {
		if name, text, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "CKD_") && strings.TrimSpace(text) == "" {
			found = append(found, Unusable{name, text, "a value, or no such variable"})
			_ = os.Unsetenv(name) // a name that was set can be unset
		}
	}
	elsewhere, share := goElsewhere(), variable(samplerShare)
	for _, kind := range standardVariables {
		for _, name := range kind.names {
			text, isSet := os.LookupEnv(name)
			if !isSet {
				continue
			}
			value := strings.TrimSpace(text)
			usable, ok := kind.clean(value)
			if ok = ok && value != ""; !ok {
				found = append(found, Unusable{name, kind.show(value), kind.expected})
			}
			if usable == "" || elsewhere && slices.Contains(endpoints, name) {
				_ = os.Unsetenv(name)
			} else {
				_ = os.Setenv(name, usable) // a part of what it was
			}
		}
	}
	if share != "" && variable(samplerShare) == "" && strings.HasSuffix(strings.ToLower(variable(sampler)), "ratio") {
		_ = os.Unsetenv(sampler) // without its share it would sample every call
	}
	return found
}

// variable returns the value of an environment variable.
func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

const (
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	sampler        = "OTEL_TRACES_SAMPLER"
	samplerShare   = "OTEL_TRACES_SAMPLER_ARG"
)

var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// goElsewhere reports whether the environment wants no spans at its endpoints by OTLP over gRPC.
func goElsewhere() bool {
	exporter, chosen := variable("OTEL_TRACES_EXPORTER"), variable(tracesProtocol)
	if chosen == "" {
		chosen = variable(protocol)
	}
	return strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") || exporter != "" && !listed(exporter, "otlp") || chosen != "" && chosen != "grpc"
}

// standardVariable is a kind of OpenTelemetry's variables.
type standardVariable struct {
	names    []string
	expected string
	// clean returns what can be used of a value, and whether that is all of it.
	clean func(value string) (usable string, ok bool)
	show  func(value string) string
}

// standardVariables are those that the daemon, or the SDK in it, reads.
var standardVariables = []standardVariable{
	{names("OTEL_SDK_DISABLED"), "true or false", when(func(v string) bool { return oneOf("true", "false")(strings.ToLower(v)) }), whole},
	{names("OTEL_TRACES_EXPORTER"), "otlp or none; spans go nowhere unless trace-endpoint says where",
		when(func(v string) bool { return listed(v, "otlp") || listed(v, "none") }), whole},
	{names(protocol), onlyGRPC, when(func(v string) bool { return v == "grpc" || variable(tracesProtocol) != "" }), whole},
	{names(tracesProtocol), onlyGRPC, when(oneOf("grpc")), whole},
	{endpoints, "http://HOST:PORT or https://HOST:PORT", when(isEndpoint), withoutPassword},
	{names(sampler), "always_on, always_off, traceidratio, or one of these after parentbased_", when(func(v string) bool {
		return oneOf("always_on", "always_off", "traceidratio")(strings.TrimPrefix(strings.ToLower(v), "parentbased_"))
	}), whole},
	{names(samplerShare), "a share from 0 to 1", when(func(v string) bool {
		share, err := strconv.ParseFloat(v, 64)
		return err == nil && share >= 0 && share <= 1
	}), whole},
	{names("OTEL_PROPAGATORS"), "tracecontext among them, the only one that is read",
		when(func(v string) bool { return listed(v, "tracecontext") }), whole},
	{both("HEADERS"), "NAME=VALUE, by comma, with values percent-encoded in ASCII", pairs(isHeader), hidden},
	{both("TIMEOUT"), "milliseconds from 1 to 86400000", when(wholeNumber(1, 86_400_000)), whole},
	{both("COMPRESSION"), "gzip or none", when(oneOf("gzip", "none")), whole},
	{both("CERTIFICATE"), "a PEM file with a certificate", when(isCertificateFile), whole},
	{names("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"), "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE beside it",
		when(func(string) bool { return variable("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE") != "" }), whole},
	{names("OTEL_EXPORTER_OTLP_CLIENT_KEY"), "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it",
		when(func(string) bool { return variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE") != "" }), whole},
	{names("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE"), "a PEM file, and its key in OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
		when(isPair("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY")), whole},
	{names("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), "a PEM file, and its key in OTEL_EXPORTER_OTLP_CLIENT_KEY",
		when(isPair("OTEL_EXPORTER_OTLP_CLIENT_KEY")), whole},
	{names("OTEL_SERVICE_NAME"), "UTF-8", when(utf8.ValidString), whole},
	{names("OTEL_RESOURCE_ATTRIBUTES"), "NAME=VALUE, by comma, with values percent-encoded", pairs(isAttribute), whole},
	{names("OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"), "milliseconds from 1 to 86400000", when(wholeNumber(1, 86_400_000)), whole},
	{names("OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), "1 to 1000000", when(wholeNumber(1, 1_000_000)), whole},
	{names("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT",
		"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"), "a whole number", when(wholeNumber(-1<<31, 1<<31-1)), whole},
}

const onlyGRPC = "grpc, the only protocol of the daemon's spans; they go nowhere unless trace-endpoint says where"

func names(names ...string) []string { return names }

// both returns a variable of the exporter of spans, and the one of all exporters.
func both(name string) []string {
	return names("OTEL_EXPORTER_OTLP_TRACES_"+name, "OTEL_EXPORTER_OTLP_"+name)
}

// when cleans a value that can be used as it is or not at all.
func when(usable func(string) bool) func(string) (string, bool) {
	return func(value string) (string, bool) {
		if !usable(value) {
			return "", false
		}
		return value, true
	}
}

// pairs cleans a list of NAME=VALUE, of which each can be used or not.
func pairs(usable func(name, value string) bool) func(string) (string, bool) {
	return func(list string) (string, bool) {
		var good []string
		ok := true
		for pair := range strings.SplitSeq(list, ",") {
			name, encoded, given := strings.Cut(pair, "=")
			value, err := url.PathUnescape(encoded)
			switch {
			case strings.TrimSpace(pair) == "": // a comma too many
			case given && err == nil && usable(strings.TrimSpace(name), value):
				good = append(good, pair)
			default:
				ok = false
			}
		}
		return strings.Join(good, ","), ok
	}
}

func oneOf(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, v) }
}

// listed reports whether an item is in a list.
func listed(list, item string) bool {
	for each := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(each), item) {
			return true
		}
	}
	return false
}

func wholeNumber(least, most int) func(string) bool {
	return func(v string) bool {
		n, err := strconv.Atoi(v)
		return err == nil && n >= least && n <= most
	}
}

// isEndpoint reports whether a text is the URL of a collector.
func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

var headerName = regexp.MustCompile(`^[0-9A-Za-z_.-]+$`)

// isHeader reports whether gRPC takes a header.
func isHeader(name, value string) bool {
	return headerName.MatchString(name) && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

func isAttribute(name, value string) bool { return name != "" && utf8.ValidString(name+value) }

func isCertificateFile(path string) bool {
	pem := pemFile(path)
	return pem != nil && x509.NewCertPool().AppendCertsFromPEM(pem)
}

func isPair(key string) func(string) bool {
	return func(certificate string) bool {
		_, err := tls.X509KeyPair(pemFile(certificate), pemFile(variable(key)))
		return err == nil
	}
}

// pemFile returns what a regular file holds. Others could block the start; of them, and of what cannot
// be read, it returns nothing.
func pemFile(path string) []byte {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

func whole(value string) string { return value }

func hidden(value string) string {
	if value == "" {
		return ""
	}
	return "(not shown)"
}

// withoutPassword returns a URL, or what was meant as one, without what may be secret.
func withoutPassword(text string) string {
	text, _, _ = strings.Cut(text, "?")
	if at := strings.LastIndex(text, "@"); at >= 0 {
		text = "..." + text[at:]
	}
	return text
}
