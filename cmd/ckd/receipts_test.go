package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// TestReceiptsOpen opens receipts from each form of file, with the policy and without. One that was changed and one that
// is none do not keep the others from being printed.
func TestReceiptsOpen(t *testing.T) {
	t.Parallel()
	keyFile := writeFile(t, "keys", outcometest.Key+"\n")
	policies := writeFile(t, "p.yaml", strings.Replace(whatifPolicy, "name: m", "name: m\n    version: seven", 1))
	p := outcometest.Policy(t, whatifPolicy)
	r := receipt.Receipt{Policy: p.HashBytes(), Version: receipt.VersionHash("seven"), Time: 1772366400123456, Stratum: receipt.Deferred, Action: uint8(policy.Defer),
		Reason: uint8(policy.AboveThreshold), Gate: uint8(policy.ByPrimary), Predicted: 1, Passes: 30, Review: true, Propensity: 1, Risk: float32(math.NaN()), Group: 255}
	for i := range r.Scores {
		r.Scores[i] = float32(math.NaN())
	}
	r.Scores[decomp.MI] = 0.3
	sealed := receipt.NewSealer(outcometest.Keys(t, outcometest.Key)).Seal(nil, &r)
	text := base64.StdEncoding.EncodeToString(sealed)
	_, id, err := outcometest.Keys(t, outcometest.Key).Open(sealed)
	if err != nil {
		t.Fatal(err)
	}
	const (
		begin = `{"time":"2026-03-01T12:00:00.123456Z",`
		end   = `"stratum":"deferred","scores":{"mi":0.3},"passes":30,"review":true,"propensity":1,"group":"ff","receipt_id":"%s"}` + "\n"
	)
	known := fmt.Sprintf(begin+`"model":"m","model_version":"seven","policy_hash":"%s","action":"defer","reason":"above_threshold","gate":"primary","score":"mi","value":0.3,"threshold":0.1,"predicted":"suspect",`+end,
		p.Hash, hex.EncodeToString(id[:]))
	unknown := fmt.Sprintf(begin+`"model_version_hash":"%016x","policy_hash":"%s","action":"defer","reason":"above_threshold","gate":"primary","predicted":"1",`+end, r.Version, p.Hash, hex.EncodeToString(id[:]))

	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	wrong := base64.StdEncoding.EncodeToString(changed)
	for name, c := range map[string]struct{ text, faults string }{
		"lines.txt": {text + "\n\n" + wrong + "\n" + base64.RawURLEncoding.EncodeToString(sealed) + "\n", "lines.txt:3: the receipt does not open: not a receipt as it was sealed: it was changed, cut off, or made up\n"},
		"a.csv":     {"case,receipt\n1," + text + "\n2,%%%\n3,\n4," + text + "\n", "a.csv:3: the receipt does not open: \"%%%\" is not base64, expected the receipt as it came\n"},
		"a.jsonl":   {`{"receipt":"` + text + `","x":1}` + "\n{\n{}\n" + `{"receipt":"` + text + `"}`, "a.jsonl:2: the receipt does not open: not a JSON object with a text as its receipt: unexpected end of JSON input\n"},
	} {
		file := writeFile(t, name, c.text)
		out, stderr, code := runCommand(t, "receipts", "open", "--receipt-keys", keyFile, "--policy", policies, file)
		if code != 1 || out != known+known || !strings.HasSuffix(stderr, c.faults) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d\n%s\nwant\n%s\n%s", name, code, out, known+known, stderr)
		}
	}
	var out, stderr bytes.Buffer
	if code := run(&cmdContext{t.Context(), strings.NewReader(text), &out, &stderr}, []string{"receipts", "open", "--receipt-keys", keyFile, "-"}); code != 0 || out.String() != unknown {
		t.Errorf("exit %d: %s\nwant %s%s", code, out.String(), unknown, stderr.String())
	}
	for message, args := range map[string][]string{
		"no such file":            {"--receipt-keys", keyFile, "none.txt"},
		"no such column":          {"--receipt-keys", keyFile, writeFile(t, "b.csv", "case\n1\n")},
		"missing flags":           {"-"},
		"keys:1:1: key: expected": {"--receipt-keys", writeFile(t, "keys", "00\n"), "-"},
	} {
		if _, stderr, code := runCommand(t, append([]string{"receipts", "open"}, args...)...); code == 0 || !strings.Contains(stderr, message) {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
}
