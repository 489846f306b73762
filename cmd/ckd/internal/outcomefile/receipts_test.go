package outcomefile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/internal/strictyaml"
)

// TestReadReceipts reads the same receipts from each form of a file.
func TestReadReceipts(t *testing.T) {
	want := []outcomefile.Receipt{{Line: 2, Case: "12345678901234567", Receipt: []byte("a")}, {Line: 4, Receipt: []byte("b")}}
	columns := map[string]string{"receipt": "ckd_receipt", "case": "accession"}
	for name, text := range map[string]string{
		"a.csv":   "accession,ckd_receipt,other\n12345678901234567,YQ,x\n18,,x\n,Yg==,x\n",
		"a.tsv":   "accession\tckd_receipt\n12345678901234567\tYQ\n18\t\n\tYg==\n",
		"a.jsonl": "\n{\"accession\":12345678901234567,\"ckd_receipt\":\"YQ\"}\n{\"accession\":\"18\"}\n{\"ckd_receipt\":\"Yg==\",\"scores\":{}}\n",
	} {
		got, err := outcomefile.ReadReceipts(write(t, name, text), columns)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for text, want := range map[string]string{
		"{\"receipt\":3}\n":      ":1:1: receipt: no text, expected the receipt in base64",
		"{\"receipt\":\"a*\"}\n": ":1:1: receipt: \"a*\" is not base64",
		"receipt\n":              ":1:1: not a JSON object",
		"{}\n":                   ": no receipt, expected at least one",
	} {
		_, err := outcomefile.ReadReceipts(write(t, "a.jsonl", text), nil)
		if faults := (strictyaml.Faults)(nil); !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %s", text, err, want)
		}
	}
	if _, err := outcomefile.ReadReceipts(write(t, "a.csv", "case\n17\n"), nil); err == nil || !strings.Contains(err.Error(), "1:1: receipt: no such column") {
		t.Errorf("without the column: %v", err)
	}
}
