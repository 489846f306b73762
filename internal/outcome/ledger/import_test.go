package ledger_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// TestImport enters an export into an empty ledger: the export of that one is the same to the byte. Again, it changes
// nothing, not even the trail.
func TestImport(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(30 * oneDay)
	b.report(b.simulate(300)...)
	b.now = b.now.Add(3 * oneDay)
	export := func(b *bench) string {
		b.Helper()
		var out bytes.Buffer
		if err := b.Export(&out, ledger.JSONLines, ledger.Filter{}); err != nil {
			b.Fatal(err)
		}
		return out.String()
	}
	text := export(b)
	kinds := map[string]truth.Kind{"reading": truth.ByReading, "follow-up": truth.ByFollowUp, "biopsy": truth.ByBiopsy}
	var batch []ledger.Outcome
	for line := range strings.Lines(text) {
		var d ledger.Line
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Readings {
			batch = append(batch, ledger.Outcome{Receipt: d.Receipt, Truth: r.Truth, Source: r.Source, At: r.At, SawModel: r.SawModel, Kind: kinds[r.Kind],
				By: r.By, Reported: r.Reported})
		}
	}
	if len(batch) < 200 {
		t.Fatalf("%d readings", len(batch))
	}
	o := openBench(t, ledger.Options{})
	o.keys, o.now = b.keys, b.now
	for again := range 2 {
		answers, err := o.Import("ann", "moved", batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if !a.Stored() {
				t.Fatalf("reading %d: %s: %s", i, a.Status, a.Why)
			}
		}
		if got := export(o); got != text {
			t.Fatalf("import %d: the export differs:\n%.2000s\nwant\n%.2000s", again, got, text)
		}
		events, err := o.Trail()
		if err != nil {
			t.Fatal(err)
		}
		events = slices.DeleteFunc(events, func(e ledger.Event) bool { return e.Kind != "outcomes_imported" })
		if len(events) != 1 || events[0].By != "ann" || events[0].Reason != "moved" {
			t.Errorf("import %d: the trail has %+v, want the first import alone", again, events)
		}
	}
	bad := batch[0]
	bad.Reported = o.now.Add(time.Hour)
	timeless := batch[0]
	timeless.At = time.Time{}
	forged := batch[0]
	forged.Receipt = []byte("x")
	answers, err := o.Import("ann", "moved", []ledger.Outcome{bad, timeless, forged})
	if err != nil {
		t.Fatal(err)
	}
	same(t, statuses(answers), []string{"invalid", "invalid", "forged"})
}

// TestTablesExported writes what was issued, and what of it is overdue.
func TestTablesExported(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(3 * oneDay)
	b.decide(0, 4, audited(.1), "c")
	b.issue(0, receipt.CalledSafe, 100, 10, 100)
	b.issue(2, receipt.CalledSafe, 50, 5, 50)
	read := func(write func(*bytes.Buffer) error) [][]string {
		t.Helper()
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	rows := read(func(out *bytes.Buffer) error { return b.ExportIssued(out, ledger.CSV, ledger.Filter{}) })
	if len(rows) != 3 || rows[1][0] != "triage" || rows[1][2] != version || rows[1][3] != "called_safe" || rows[1][4] != "2026-03-01T03:00:00Z" || rows[1][5] != "daemon 1" || rows[1][6] != "100" {
		t.Errorf("issued: %v", rows)
	}
	rows = read(func(out *bytes.Buffer) error {
		return b.ExportIssued(out, ledger.CSV, ledger.Filter{From: day0.Add(oneDay)})
	})
	if len(rows) != 2 {
		t.Errorf("issued since the second day: %v", rows)
	}
	overdue := func(out *bytes.Buffer) error { return b.ExportOverdue(out, ledger.CSV, ledger.Filter{}) }
	if rows := read(overdue); len(rows) != 1 {
		t.Errorf("overdue before anything is due: %v", rows)
	}
	b.mature(0)
	if rows := read(overdue); len(rows) != 2 || rows[1][3] != "called_safe" || rows[1][7] != "10" || rows[1][8] != "6" {
		t.Errorf("overdue: %v, want 6 of 10", rows)
	}
	var out bytes.Buffer
	if err := b.ExportOverdue(&out, ledger.JSONLines, ledger.Filter{Model: func(name string) bool { return name != "triage" }}); err != nil || out.Len() > 0 {
		t.Errorf("of another model: %s, %v", out.Bytes(), err)
	}
}
