package outcomefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/internal/strictyaml"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRead checks that both forms of a file mean the same.
func TestRead(t *testing.T) {
	want := &outcomefile.File{
		Outcomes: []*ckdv1.Outcome{
			{Receipt: []byte{0xfb, 0xff}, Truth: "normal", Source: "reader-1", Time: timestamppb.New(time.Date(2026, 3, 1, 14, 30, 0, 0, time.UTC)),
				SawModel: true, Kind: ckdv1.OutcomeKind_OUTCOME_KIND_READING},
			{Receipt: []byte{0xfb, 0xff}, Truth: "suspect, perhaps", Source: "room", Kind: ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP},
		},
		Lines: []int{2, 3}, Open: 1, WithoutReceipt: 1, Unused: []string{"case"},
	}
	for name, text := range map[string]string{
		"labels.csv": "\ufeffcase,ckd_receipt,truth,source,time,saw_model,kind\n" +
			"17,-_8,normal,reader-1,2026-03-01T15:30:00+01:00,TRUE,reading\n" +
			"18,+/8=,\"suspect, perhaps\",,,,follow-up\n" +
			"19,+/8=,,,,,\n" +
			"20,,normal,,,,\n",
		"labels.jsonl": "\n" +
			`{"case": 17, "ckd_receipt": "-_8", "truth": "normal", "source": "reader-1", "time": "2026-03-01T15:30:00+01:00", "saw_model": true, "kind": "reading"}` + "\n" +
			`{"ckd_receipt": "+/8=", "truth": "suspect, perhaps", "source": null, "kind": "follow-up"}` + "\n" +
			`{"ckd_receipt": "+/8=", "truth": null}` + "\n" +
			`{"ckd_receipt": "", "truth": "normal"}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outcomefile.Read(write(t, name, text), outcomefile.Options{Columns: map[string]string{"receipt": "ckd_receipt"}, Source: "room"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFaults checks that all faults come together, each at its place.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		want             []string // each begins with line:col
	}{
		{"fields of CSV", "a.csv", "receipt,truth,source,time,saw_model,kind\n" +
			"a*,normal,s,,,\n" +
			"YQ,normal,,,,\n" +
			"YQ,normal,s,today,perhaps,reeding\n",
			[]string{`2:1: receipt: "a*" is not base64`, "3:1: source: none", `4:13: time: "today"`, `4:19: saw_model: "perhaps"`, `4:27: kind: "reeding", expected reading, biopsy or follow-up, did you mean "reading"?`}},
		{"no such column", "a.csv", "receipt,label\n", []string{"1:1: truth: no such column"}},
		{"a column twice", "a.csv", "receipt,truth,truth\n", []string{"1:15: truth: the column stands twice"}},
		{"a short row", "a.csv", "receipt,truth,source\nYQ,normal\nYQ,normal,s\na*,b,c\n", []string{"2:1: 2 columns, expected 3", "4:1: receipt: "}},
		{"no CSV", "a.csv", "receipt,truth,source\nYQ,\"nor\nmal\n", []string{"3:5: not CSV: "}},
		{"an empty CSV", "a.csv", "", []string{"1:1: no header"}},
		{"fields of JSON", "a.jsonl", `{"receipt": "a*", "truth": "normal", "source": "s"}` + "\n" + `{"receipt":"YQ","truth":"b","source":"s","saw_model":1.5}`,
			[]string{`1:13: receipt: "a*" is not base64`, `2:54: saw_model: "1.5"`}},
		{"no such key", "a.jsonl", `{"receipt": "YQ", "thruth": "normal"}`, []string{`1:1: truth: no such key, did you mean "thruth"?`}},
		{"a key twice", "a.jsonl", `{"receipt": "YQ", "truth": "b", "truth": "c", "source": "s"}`, []string{"1:33: truth: the key stands twice"}},
		{"an object as a value", "a.jsonl", ` {"truth": {"a": 1}}`, []string{"1:12: truth: expected a text"}},
		{"no object", "a.jsonl", "\n[1]", []string{"2:1: expected an object"}},
		{"half an object", "a.jsonl", `{"receipt": "YQ", `, []string{"1:18: not JSON: the object does not end on its line"}},
		{"two objects", "a.jsonl", `{"receipt": "YQ", "truth": ""} {}`, []string{"1:32: more than one object"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.file, c.text)
			_, err := outcomefile.Read(path, outcomefile.Options{})
			var faults strictyaml.Faults
			if !errors.As(err, &faults) || len(faults) != len(c.want) {
				t.Fatalf("error %v, expected %d faults", err, len(c.want))
			}
			for i, want := range c.want {
				if got := faults[i].Error(); !strings.HasPrefix(got, path+":"+want) {
					t.Errorf("fault %s, expected %s", strings.TrimPrefix(got, path+":"), want)
				}
			}
		})
	}
	t.Run("another ending", func(t *testing.T) {
		if _, err := outcomefile.Read("labels.xlsx", outcomefile.Options{}); err == nil || !strings.Contains(err.Error(), "expected a file that ends in .csv") {
			t.Errorf("error %v", err)
		}
	})
}

// FuzzRead checks that any file ends in outcomes with a receipt, a truth and a source, or in faults.
func FuzzRead(f *testing.F) {
	f.Add("receipt,truth,source\nYQ,normal,s\n", true)
	f.Add(`{"receipt": "YQ", "truth": "normal", "source": "s"}`, false)
	path := filepath.Join(f.TempDir(), "a")
	f.Fuzz(func(t *testing.T, text string, asCSV bool) {
		name := path + map[bool]string{true: ".csv", false: ".jsonl"}[asCSV]
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := outcomefile.Read(name, outcomefile.Options{})
		if err != nil {
			if faults := (strictyaml.Faults)(nil); !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("error %v, expected faults", err)
			}
			return
		}
		if len(file.Lines) != len(file.Outcomes) {
			t.Errorf("%d lines of %d outcomes", len(file.Lines), len(file.Outcomes))
		}
		for _, o := range file.Outcomes {
			if o.GetTruth() == "" || o.GetSource() == "" {
				t.Errorf("outcome %v", o)
			}
		}
	})
}
