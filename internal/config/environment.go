package config

import (
	"cmp"
	"crypto/x509"
	"net/url"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Unusable describes an environment variable that counts as not set.
type Unusable struct {
	Variable string
	Value    string // without what may be secret
	Expected string
}

// CleanEnvironment removes variables that must not stop a daemon, and returns those that somebody may
// have meant for it: CKD_ variables that are empty, as templates leave them, and standardVariables that
// cannot be used, since clusters set those for all their programs. It removes all other OTEL_
// variables too. Call it before anything reads the environment: OpenTelemetry's SDK prints the secrets
// of some values, and panics at others.
func CleanEnvironment() []Unusable {
	var found []Unusable
	elsewhere := goElsewhere()
	for _, variable := range os.Environ() {
		name, text, _ := strings.Cut(variable, "=")
		value := strings.TrimSpace(text)
		kind, isRead := standardVariables[name]
		switch {
		case strings.HasPrefix(name, "CKD_"):
			if value != "" {
				continue
			}
			found = append(found, Unusable{name, text, "a value, or no such variable"})
		case !strings.HasPrefix(name, "OTEL_"):
			continue
		case !isRead:
		case isEndpointName(name) && elsewhere:
			found = append(found, Unusable{name, kind.show(value), "spans by OTLP over gRPC; the environment asks for others, or for none"})
		case value != "" && kind.usable(value):
			_ = os.Setenv(name, value)
			continue
		default:
			found = append(found, Unusable{name, kind.show(value), kind.expected})
		}
		_ = os.Unsetenv(name) // a name that was set can be unset
	}
	return found
}

// goElsewhere reports whether the environment wants no spans at its endpoints by OTLP over gRPC.
func goElsewhere() bool {
	variable := func(name string) string { return strings.TrimSpace(os.Getenv(name)) }
	exporter := variable("OTEL_TRACES_EXPORTER")
	protocol := cmp.Or(variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), variable("OTEL_EXPORTER_OTLP_PROTOCOL"), "grpc")
	return strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") || exporter != "" && !listed(exporter, "otlp") || protocol != "grpc"
}

// standardVariable is one of OpenTelemetry's variables.
type standardVariable struct {
	expected string
	usable   func(value string) bool
	show     func(value string) string
}

// standardVariables are those of OpenTelemetry that the daemon, or the SDK in it, reads.
var standardVariables = func() map[string]standardVariable {
	whole := func(value string) string { return value }
	all := map[string]standardVariable{
		"OTEL_SERVICE_NAME":        {"UTF-8", utf8.ValidString, whole},
		"OTEL_RESOURCE_ATTRIBUTES": {"NAME=VALUE, by comma, with values percent-encoded", pairs(isAttribute), whole},
	}
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"} {
		all[prefix+"ENDPOINT"] = standardVariable{"http://HOST:PORT or https://HOST:PORT", isEndpoint, withoutPassword}
		all[prefix+"HEADERS"] = standardVariable{"NAME=VALUE, by comma, with values percent-encoded in ASCII", pairs(isHeader), hidden}
		all[prefix+"CERTIFICATE"] = standardVariable{"a PEM file with a certificate", isCertificateFile, whole}
	}
	return all
}()

func isEndpointName(name string) bool { return strings.HasSuffix(name, "_ENDPOINT") }

// pairs checks a list of NAME=VALUE.
func pairs(usable func(name, value string) bool) func(list string) bool {
	return func(list string) bool {
		for pair := range strings.SplitSeq(list, ",") {
			name, encoded, given := strings.Cut(pair, "=")
			value, err := url.PathUnescape(encoded)
			if !given || err != nil || !usable(strings.TrimSpace(name), value) {
				return false
			}
		}
		return true
	}
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

// isCertificateFile reports whether a regular file, which cannot block the start, has a certificate.
func isCertificateFile(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	pem, err := os.ReadFile(path)
	return err == nil && x509.NewCertPool().AppendCertsFromPEM(pem)
}

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
