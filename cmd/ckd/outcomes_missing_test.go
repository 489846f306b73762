package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestMissingText checks that the counts come first and that no list takes more than 40 lines.
func TestMissingText(t *testing.T) {
	due := timestamppb.New(time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC))
	var all []outcomefile.Receipt
	var states []*ckdv1.ReviewState
	add := func(s *ckdv1.ReviewState) {
		all, states = append(all, outcomefile.Receipt{Line: len(all) + 2, Case: fmt.Sprint("A", len(all))}), append(states, s)
	}
	add(&ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_ANSWERED, Wanted: ckdv1.Wanted_WANTED_THIRD_READ, Sources: []string{"ann", "bob"}})
	add(&ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_NONE})
	add(&ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_ANSWERED})
	for range 60 {
		add(&ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_OVERDUE, Due: due})
	}
	text := missingText("f.csv", all, states)
	for _, want := range []string{"60 outcomes are overdue, and of 1 inputs another reading is wanted, of 63 receipts.\nOf the other 2: 1 were not to be reviewed, 1 have all their readings.\n",
		"f.csv:2: case A0: a third read by another source is wanted; read by ann, bob\n", "f.csv:5: case A3: overdue since 2026-03-15 00:00\n", "... and 24 more: --format csv\n"} {
		wantFragment(t, text, want)
	}
	rows := make([]overdueRow, 50)
	for i := range rows {
		rows[i] = overdueRow{Model: fmt.Sprint("m", i), Stratum: "called_safe", Overdue: uint64(i + 1)}
	}
	counts := overdueText(rows)
	wantFragment(t, counts, "1275 outcomes are overdue.")
	for name, text := range map[string]string{"receipts": text, "counts": counts} {
		if n := strings.Count(text, "\n"); n > mostLines {
			t.Errorf("%s: %d lines", name, n)
		}
	}
	if first := strings.Split(counts, "\n")[2]; !strings.Contains(first, "m49") {
		t.Errorf("the most overdue first, not %s", first)
	}
}

// TestDeletedText says what is gone, what remains and why.
func TestDeletedText(t *testing.T) {
	text := deletedText(&ckdv1.DeleteOutcomesResponse{Deleted: 3, Left: 2, Until: timestamppb.New(time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)), Unreadable: 1})
	for _, want := range []string{"3 decisions with outcomes are deleted", "2 remain: evidence takes the last of their days on 2026-03-15", "1 receipts cannot be read", "are refused from now on", "Backups, exports"} {
		wantFragment(t, text, want)
	}
	if text := deletedText(&ckdv1.DeleteOutcomesResponse{}); strings.Contains(text, "refused") || !strings.HasPrefix(text, "0 decisions") {
		t.Errorf("nothing deleted: %s", text)
	}
}
