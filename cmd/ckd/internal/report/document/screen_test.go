package document

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// TestScreenFits gives a screen more than it can show: names of 200 letters, rows, warnings and points.
// The lead and what to do are kept whole.
func TestScreenFits(t *testing.T) {
	name := strings.Repeat("n", 200)
	s := Screen{Lead: strings.Repeat("It misses 9 of 471 critical inputs. ", 5), Next: []string{"Do the first thing.", "Do the last thing."}}
	s.Table = &Table{Head: []string{"rule", "missed of critical", "critical miss rate", "95% interval"}, TextColumns: 1}
	for i := range 1000 {
		s.Table.Add(fmt.Sprint(name, i), Of{9, 471}, Share(0.019), ShareInterval{0.009, 0.036})
		s.Warnings = append(s.Warnings, strings.Repeat("Passes repeat. ", 10))
		s.Rests = append(s.Rests, strings.Repeat("Labels are taken for the truth. ", 5))
	}
	var out strings.Builder
	if _, err := s.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines > ScreenLines {
		t.Errorf("%d lines, expected at most %d\n%s", lines, ScreenLines, out.String())
	}
	if columns := text.LongestLineLen(out.String()); columns > textWidth {
		t.Errorf("%d columns, expected at most %d\n%s", columns, textWidth, out.String())
	}
	for _, part := range []string{"9 of 471", "0.9% to 3.6%", "997 more warnings", "Do the last thing."} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}
