package deploytest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

const serverName = "ckd.grading.svc"

// mountVolumes creates the folders that a container mounts, under root.
func mountVolumes(t *testing.T, r []runtime.Object, spec core.PodSpec, c core.Container, root string) map[string]testbed.Kubelet {
	t.Helper()
	secrets := secretFiles(t)
	all := map[string]testbed.Kubelet{}
	for _, m := range c.VolumeMounts {
		v := testbed.Kubelet{Dir: filepath.Join(root, m.MountPath)}
		all[m.MountPath] = v
		if err := os.MkdirAll(v.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(spec.Volumes, func(s core.Volume) bool { return s.Name == m.Name })
		if at < 0 { // claimed by the StatefulSet: empty at first
			continue
		}
		source := spec.Volumes[at]
		switch {
		case source.ConfigMap != nil && source.ConfigMap.Name == "mine":
			v.MustWrite(t, map[string]string{"one.yaml": onePolicy})
		case source.ConfigMap != nil:
			for _, o := range objectsOf[*core.ConfigMap](r) {
				if o.Name == source.ConfigMap.Name {
					v.MustWrite(t, o.Data)
				}
			}
		case source.Secret != nil:
			if secrets[source.Secret.SecretName] == nil {
				t.Fatalf("no secret %s", source.Secret.SecretName)
			}
			v.MustWrite(t, secrets[source.Secret.SecretName])
		case source.EmptyDir == nil && source.Projected == nil:
			t.Fatalf("volume %+v", source)
		}
	}
	return all
}

// secretFiles returns the Secrets that a user brings: a certificate, the clients' authority with
// its revocation list, an access file, and keys of receipts.
func secretFiles(t *testing.T) map[string]map[string]string {
	t.Helper()
	const receiptKey = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
	ca := certtest.NewCA(t, "authority")
	pair := ca.Issue(t, func(c *x509.Certificate) { c.DNSNames = []string{serverName} })
	return map[string]map[string]string{
		"ckd-tls":       {"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM), "ca.crt": string(ca.PEM)},
		"ckd-client-ca": {"ca.crt": string(ca.PEM), "crl.pem": string(ca.Revoke(t, time.Now().Add(time.Hour)))},
		"ckd-access": {
			"access.yaml":  "identities:\n  - name: grader\n    tokens: [{file: grader-token}]\n    models: ['*']\n",
			"grader-token": "0123456789abcdef0123456789abcdef\n",
			"ledger-token": "fedcba9876543210fedcba9876543210\n",
		},
		"ckd-receipts": {"receipt-keys": receiptKey, "keys": receiptKey},
	}
}

// rooted moves the paths of a container under a folder, and its addresses to free ports.
func rooted(root string) *strings.Replacer {
	free := `"127.0.0.1:0"`
	return strings.NewReplacer("/etc/ckd", root+"/etc/ckd", "/run/ckd", root+"/run/ckd", "/var/lib/ckd", root+"/var/lib/ckd",
		`":8590"`, free, `":8591"`, free, `":9590"`, free, `"127.0.0.1:8590"`, free, `"127.0.0.1:8591"`, free, `"127.0.0.1:6060"`, free)
}

// socketDir returns a folder with a short name, since the path of a socket has at most 107 bytes.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the rest stays in the system's temporary folder
	return dir
}

// healthz returns what the daemon says about the policies in force.
func healthz(t *testing.T, d *testbed.Daemon, root string) string {
	t.Helper()
	transport := &http.Transport{}
	if strings.HasPrefix(d.Admin, "https:") {
		transport.TLSClientConfig = &tls.Config{ServerName: serverName, RootCAs: x509.NewCertPool()}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(getFile(t, filepath.Join(root, "etc/ckd/tls/ca.crt"))))
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(d.Admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
