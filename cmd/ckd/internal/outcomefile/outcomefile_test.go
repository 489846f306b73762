package outcomefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
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

// encoded returns text in another encoding.
func encoded(form encoding.Encoding, text string) string {
	out, err := form.NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return out
}

// TestRead reads every field, and leaves out rows without a truth or a receipt.
func TestRead(t *testing.T) {
	want := &outcomefile.File{
		Outcomes: []*ckdv1.Outcome{
			{Receipt: []byte{0xfb, 0xff}, Truth: "normal", Source: "reader-1", Time: timestamppb.New(time.Date(2026, 3, 1, 14, 30, 0, 0, time.UTC)),
				SawModel: true, Kind: ckdv1.OutcomeKind_OUTCOME_KIND_READING},
			{Receipt: []byte{0xfb, 0xff}, Truth: "suspect, perhaps", Source: "room", Kind: ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP},
		},
		Lines: []int{2, 3}, Open: 1, WithoutReceipt: 1, Unused: []string{"case"},
	}
	text := "\ufeffcase,ckd_receipt,truth,source,time,saw_model,kind\n" +
		"17,-_8,normal,reader-1,2026-03-01T15:30:00+01:00,TRUE,reading\n" +
		"18,+/8=,\"suspect, perhaps\",,,,follow-up\n" +
		"19,+/8=,,,,,\n" +
		"20,,normal,,,,\n"
	got, err := outcomefile.Read(write(t, "labels.csv", text), outcomefile.Options{Columns: map[string]string{"receipt": "ckd_receipt"}, Source: "room"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
		{"a header alone", "a.csv", "receipt,truth,source\n", []string{" nothing to send: 0 rows without a truth"}},
		{"nothing read yet", "a.csv", "receipt,truth\nYQ,\nYQ,\n,a\n", []string{" nothing to send: 2 rows without a truth and 1 without a receipt"}},
		{"a spreadsheet", "a.csv", "PK\x03\x04...", []string{" an archive or a spreadsheet"}},
		{"a packed file", "a.csv", "\x1f\x8b\x08", []string{" a file packed by gzip"}},
		// Two readers became one, whose second reading corrected the first, when what is not UTF-8 was replaced.
		{"Windows-1252", "a.csv", "receipt,truth,source\nYQ,a,M\xfcller\nYQ,a,s\nYQ,a,M\xf6ller\n",
			[]string{`2:6: source: "M\xfcller" has byte 0xfc ('ü' in Windows-1252)`, `4:6: source: "M\xf6ller" has byte 0xf6 ('ö'`}},
		{"Windows-1252 beside UTF-8", "a.csv", "receipt,truth,source\nYQ,a,Müller\nYQ,a,M\x81ller\n", []string{`3:6: source: "M\x81ller" has byte 0x81, expected`}},
		{"a lost character", "a.csv", "receipt,truth,source\nYQ,a,M\ufffdller\n", []string{"2:6: source: \"M\ufffdller\" has a replacement character"}},
		{"half a character in UTF-16", "a.csv", encoded(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "receipt,truth,source\nYQ,a,M") + "\x00\xd8l\x00", []string{"2:6: source: \"M\ufffdl\" has a replacement character"}},
		{"NUL", "a.csv", "receipt,truth,source\nYQ,a,s\x00\n", []string{`2:6: source: "s\x00" has a NUL character`}},
		{"another separator below", "a.csv", "receipt,truth,source\nYQ;a;s\n", []string{"2:1: 1 columns, expected 3"}},
		// The zero time was taken for now, so that an old row replaced its correction.
		{"times", "a.csv", "receipt,truth,source,time\nYQ,a,s,0001-01-01T00:00:00Z\nYQ,a,s,0001-01-01 00:00:00-05:00\nYQ,a,s,2026-11-26 20:00:00\nYQ,a,s,1764187200000\n",
			[]string{`2:8: time: "0001-01-01T00:00:00Z" is what Go and .NET write for no time`, "3:8: time: ", `4:8: time: "2026-11-26 20:00:00", expected a time with its zone`, "5:8: time: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.file, c.text)
			_, err := outcomefile.Read(path, outcomefile.Options{})
			var faults strictyaml.Faults
			if !errors.As(err, &faults) || len(faults) != len(c.want) {
				t.Fatalf("error %v, expected %d faults", err, len(c.want))
			}
			for i, want := range c.want {
				if got := faults[i].Error(); !strings.HasPrefix(got, path+":"+want) { // a place, or a space where there is none
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

// TestText checks that a file says the same in every form that spreadsheets and pandas write. A grading room
// whose Excel writes semicolons, or line ends of old Macs, sent nothing for weeks, and the exit code was 0.
func TestText(t *testing.T) {
	const csv = "receipt,truth,source,time\nYQ,normal,Müller,2026-11-26T20:00:00Z\nYg,\"b, c\",Möller,\n"
	const semicolons = "receipt;truth;source;time\nYQ;normal;Müller;2026-11-26T20:00:00Z\nYg;b, c;Möller;\n"
	for name, text := range map[string]string{
		"plain.csv":           csv,
		"bare CR.csv":         strings.ReplaceAll(csv, "\n", "\r"),
		"CRLF.csv":            strings.ReplaceAll(csv, "\n", "\r\n"),
		"mixed line ends.csv": strings.Replace(strings.Replace(csv, "\n", "\r\n", 1), "Z\n", "Z\r", 1),
		"semicolons.csv":      semicolons,
		"sep.csv":             "sep=;\r\n" + semicolons,
		"quoted sep.csv":      "\"sep=;\"\n" + semicolons,
		"bars.csv":            strings.ReplaceAll(semicolons, ";", "|"),
		"tabs.tsv":            strings.ReplaceAll(semicolons, ";", "\t"),
		"tabs.csv":            strings.ReplaceAll(semicolons, ";", "\t"),
		"all quoted.csv":      strings.Replace(csv, "receipt,truth,source,time", `"receipt","truth","source","time"`, 1),
		"mark.csv":            "\ufeff" + csv,
		"header as typed.csv": strings.Replace(csv, "receipt,truth,source", "Receipt, TRUTH ,\u00a0Source", 1),
		"spaces.csv":          strings.ReplaceAll(csv, "Müller", " Müller\u00a0"),
		"empty rows.csv":      csv + ",,,\n,\n   \n\n,,,\n",
		"no end of line.csv":  strings.TrimSuffix(csv, "\n"),
		"pandas.csv":          strings.Replace(csv, "2026-11-26T20:00:00Z", "2026-11-26 20:00:00+00:00", 1),
		"pandas zone.csv":     strings.Replace(csv, "2026-11-26T20:00:00Z", "2026-11-26 21:00:00.000000000+01:00", 1),
		"strftime.csv":        strings.Replace(csv, "2026-11-26T20:00:00Z", "2026-11-26 15:00:00-0500", 1),
		"UTF-16.csv":          encoded(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), strings.ReplaceAll(semicolons, ";", "\t")),
		"UTF-16 big.csv":      encoded(unicode.UTF16(unicode.BigEndian, unicode.UseBOM), csv),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outcomefile.Read(write(t, name, text), outcomefile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []*ckdv1.Outcome{
				{Receipt: []byte("a"), Truth: "normal", Source: "Müller", Time: timestamppb.New(time.Date(2026, 11, 26, 20, 0, 0, 0, time.UTC))},
				{Receipt: []byte("b"), Truth: "b, c", Source: "Möller"},
			}
			if diff := cmp.Diff(want, got.Outcomes, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRead checks that any file ends in outcomes with a receipt, a truth and a source, or in faults.
func FuzzRead(f *testing.F) {
	f.Add("receipt,truth,source\nYQ,normal,s\n")
	name := filepath.Join(f.TempDir(), "a.csv")
	f.Fuzz(func(t *testing.T, text string) {
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
			if text := o.GetTruth() + o.GetSource(); o.GetTruth() == "" || o.GetSource() == "" || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\ufffd") {
				t.Errorf("outcome %v", o)
			}
		}
	})
}
