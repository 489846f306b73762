package report

import (
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/cmd/ckd/internal/whatif"
)

// TestWhatIfIsOneScreen has every kind of row and every note, and expects one screen with all that cannot be known in one row.
func TestWhatIfIsOneScreen(t *testing.T) {
	t.Parallel()
	change := func(then, now string, n float64) whatif.Change {
		return whatif.Change{Then: then, Now: now, Decisions: n, ByClass: map[string]float64{"a": n - 1, "b": 1}}
	}
	r := &whatif.Report{
		Model: "m", From: time.Unix(0, 0), To: time.Unix(86400, 0), Records: 5000, Decisions: 10_000, Weighted: true, More: 200, MorePer1000: 20, Fewer: 100, Unknown: 60,
		Why: []whatif.Why{{Why: whatif.WhySkewness, Decisions: 40}, {Why: "an alarm was up", Decisions: 20}},
		Changes: []whatif.Change{change("retain", "defer", 200), change("defer", "retain", 100), change("retain", "retain", 9000), change("defer", "defer", 640),
			change("retain", "", 50), change("defer", "", 10)},
		OnlyReviewed: true, StopsEarly: true, Lost: 7, Faulty: 1,
		Outcomes: &whatif.Outcomes{Known: 900, ReadThen: 10, ReadNow: 12, MissedThen: 200, MissedNow: 190, Unread: 3, Undecided: 2, NotDrawn: 1},
	}
	d := WhatIf(r, []string{"a", "b"})
	writePage(t, d).expectRows(t, "Decisions then and now", "then|now|decisions|per 1,000|a|b", "retain|defer|200|20|199|1", "defer|retain|100|10|99|1",
		"retain|retain|9,000|900|8,999|1", "defer|defer|640|64|639|1", "any|not known|60|6.0|58|2")
	var out strings.Builder
	if _, err := d.Screen.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Of about 10,000 decisions logged between 1970-01-01 00:00 and 1970-01-02 00:00, the new policy would send 200 more to people (20 more per 1,000) and 100 fewer; " +
			"60 cannot be known, because the gate's skewness is not in the record (40), and for other reasons.",
		"any not known 60", "Misses: about 200 then and 190 now", "the truth of 3 inputs", "what would become of 2 critical inputs called safe",
		"may decide before the last pass", "Left out: 1 line not of a decision log", "The daemons lost 7 records",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n > document.ScreenLines {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
