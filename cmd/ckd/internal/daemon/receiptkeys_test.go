package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/ckd-project/ckd/cmd/ckd/internal/daemon"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// keyText returns a key file whose keys are made of a byte each.
func keyText(keys ...byte) string {
	text := "# keys\n"
	for _, key := range keys {
		text += fmt.Sprintf("%064x\n", key)
	}
	return text
}

// withReceiptKeys returns a change of the settings.
func withReceiptKeys(file string) func(*config.Config) {
	return func(c *config.Config) { c.ReceiptKeys, c.HTTP = file, "127.0.0.1:0" }
}

// receiptOverHTTP returns the receipt of an input that is sent as JSON.
func receiptOverHTTP(t *testing.T, url string) []byte {
	t.Helper()
	const body = `{"layout": "LAYOUT_NSK", "passes": 4, "inputs": 1, "input_ids": ["x"], "values": [0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 1, 0],
		"receipts": "RECEIPTS_ALL", "model_version": "v7", "contexts": [{"group": "g", "slices": {"site": "north"}}]}`
	response, err := http.Post(url+"/v1/models/m:decompose", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Results []struct {
			Decomposition struct{ Receipt []byte }
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Results) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if !strings.Contains(string(text), `"review":false`) {
		t.Errorf("the answer does not say that nobody is to look: %s", text)
	}
	return reply.Results[0].Decomposition.Receipt
}

// sealedBy reports whether keys open a receipt.
func sealedBy(t *testing.T, sealed []byte, keys ...byte) bool {
	t.Helper()
	parsed := outcometest.Keys(t, keyText(keys...))
	content, _, err := parsed.Open(sealed)
	return err == nil && content.Version == receipt.VersionHash("v7") && content.Group == parsed.DrawKey().Group([]byte("g"))
}

// TestReceiptKeys checks that receipts come over HTTP, that a changed key file comes into force, and
// that a bad one does not and is told of without its text.
func TestReceiptKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	write(t, file, keyText(1))
	d := &reloading{start(t, withReceiptKeys(file)), file}
	if !sealedBy(t, receiptOverHTTP(t, d.HTTPURL()), 1) {
		t.Error("the key does not open the receipt")
	}
	d.write("a secret that is no key\n")
	d.eventually("/metrics", `ckd_security_reloads_failed_total{files="receipt-keys"} `)
	d.eventually("/healthz", "receipt-keys: not reloaded, what was in force stays: see the log")
	if _, body := d.request(http.MethodGet, "/healthz"); strings.Contains(body, "a secret") || logged(d.logs, "a secret") {
		t.Errorf("the text of a key is shown: %s", body)
	}
	if !sealedBy(t, receiptOverHTTP(t, d.HTTPURL()), 1) {
		t.Error("the key does not open the receipt after a bad reload")
	}
	d.write(keyText(2, 1))
	for range 1000 {
		if sealedBy(t, receiptOverHTTP(t, d.HTTPURL()), 2) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the new key does not come into force")
}

// logged reports whether any line of a log has a text.
func logged(logs *observer.ObservedLogs, text string) bool {
	for _, e := range logs.All() {
		if strings.Contains(fmt.Sprint(e.Message, e.ContextMap()), text) {
			return true
		}
	}
	return false
}

// TestNoReceiptKeys checks that a daemon does not start without the keys that it was told to use.
func TestNoReceiptKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bad"), "\n  00\n")
	write(t, filepath.Join(dir, "empty"), "") // as a secret that was never filled; the daemon started without receipts
	for name, want := range map[string]string{
		"none":  "receipt-keys: " + filepath.Join(dir, "none") + ": cannot read: ",
		"empty": "receipt-keys: " + filepath.Join(dir, "empty") + ":1:1: key: none, expected at least one line",
		"bad":   "receipt-keys: " + filepath.Join(dir, "bad") + ":2:3: key: expected 32 bytes",
	} {
		t.Run(name, func(t *testing.T) {
			c := settings(t)
			withReceiptKeys(filepath.Join(dir, name))(c)
			if _, err := daemon.New(c, zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, expected %s", err, want)
			}
		})
	}
}
