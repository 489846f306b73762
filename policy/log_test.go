package policy

import (
	"slices"
	"testing"
)

// TestLog checks what a log block means, in numbers and in words.
func TestLog(t *testing.T) {
	const rest = ", without ids of inputs."
	for text, want := range map[string]struct {
		share float64
		says  string
	}{
		"{}":                              {0, "The decision log, where the daemon keeps one, has what is deferred or drawn for a review" + rest},
		"{decisions: all, id: plain}":     {1, "The decision log, where the daemon keeps one, has every decision, with the inputs' ids as clients wrote them."},
		"{decisions: 0.05, id: hash}":     {0.05, "The decision log, where the daemon keeps one, has what is deferred or drawn for a review and 5% of the rest, with keyed hashes of the inputs' ids."},
		"{vectors: true, decisions: all}": {1, "The decision log, where the daemon keeps one, has every decision" + rest[:len(rest)-1] + ", and mean, C_k and skewness of what is to be reviewed."},
	} {
		p := parseOne(t, "models:\n  - name: m\n    classes: [a, b]\n    critical: [b]\n    log: "+text+"\n")
		if share := p.Log.Share(); share != want.share {
			t.Errorf("%s: share %v, want %v", text, share, want.share)
		}
		if points := p.Explain(); !slices.Contains(points, want.says) {
			t.Errorf("%s: %q lacks %q", text, points, want.says)
		}
	}
	var none *Log
	if none.Share() != 0 {
		t.Error("without a block, more than what is to be reviewed is kept")
	}
}
