package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	"github.com/ckd-project/ckd/internal/strictyaml"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesMissingCmd says which reviews are overdue.
type outcomesMissingCmd struct {
	daemonFlags
	Receipts string            `placeholder:"FILE" help:"The receipts that a site has kept: a .csv or .tsv with a header, or .jsonl. Without it, counts are printed."`
	Columns  map[string]string `mapsep:"," placeholder:"FIELD=NAME,..." help:"Columns, or JSON keys, that have another name in the file: receipt=NAME, case=NAME."`
	Model    string            `placeholder:"NAME" help:"Without --receipts: only this model."`
	Format   string            `enum:"text,csv" default:"text" help:"text: 40 lines at most; csv: all lines. (${default})"`
}

// Help is the long text of ckd outcomes missing --help.
func (*outcomesMissingCmd) Help() string {
	return `The ledger knows how many reviews were issued, not which. From a file of the receipts that a site has kept it
finds the cases whose review is overdue, and those of which another reading is wanted.

    ckd outcomes missing --addr 127.0.0.1:8590 --receipts cases.csv --columns case=accession,receipt=ckd_receipt

Do not show the list to readers: an input of which a second reading is wanted has mostly been read as critical.

Exit codes: 0 the list is printed, also an empty one; 1 the file or the daemon has a fault; 2 wrong usage.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *outcomesMissingCmd) Validate() error {
	if c.Receipts == "" && len(c.Columns) > 0 {
		return errors.New("--columns: expected --receipts FILE with it")
	}
	if c.Receipts != "" && c.Model != "" {
		return errors.New("--model: expected it without --receipts, which say their model")
	}
	return validColumns(c.Columns)
}

// validColumns refuses columns that a file of receipts does not have.
func validColumns(columns map[string]string) error {
	for field := range columns {
		if !slices.Contains(outcomefile.ReceiptFields, field) {
			return fmt.Errorf("--columns %s=%s: expected one of %s before the =%s", field, columns[field], strings.Join(outcomefile.ReceiptFields, ", "),
				strictyaml.Suggest(field, outcomefile.ReceiptFields))
		}
	}
	return nil
}

// Run prints the list, or the counts.
func (c *outcomesMissingCmd) Run(ctx *cmdContext) error {
	var all []outcomefile.Receipt
	if c.Receipts != "" {
		var err error
		if all, err = outcomefile.ReadReceipts(c.Receipts, c.Columns); err != nil {
			return err
		}
	}
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	if c.Receipts == "" {
		return c.counts(ctx, daemon)
	}
	var states []*ckdv1.ReviewState
	for from := 0; from < len(all); from += receiptsAtOnce {
		request := &ckdv1.FindReviewsRequest{}
		for _, r := range all[from:min(from+receiptsAtOnce, len(all))] {
			request.Receipts = append(request.Receipts, r.Receipt)
		}
		reply, err := daemon.Outcomes().FindReviews(ctx.Ctx, request)
		if err != nil {
			return errors.New(replay.StatusText(err))
		}
		states = append(states, reply.GetStates()...)
	}
	if len(states) != len(all) {
		return fmt.Errorf("the daemon answered %d receipts of %d", len(states), len(all))
	}
	if c.Format == "csv" {
		return writeReviews(ctx, all, states)
	}
	fmt.Fprint(ctx.Stdout, missingText(c.Receipts, all, states))
	return nil
}

// isMissing reports whether something is still to come for a receipt.
func isMissing(s *ckdv1.ReviewState) bool {
	return s.GetStatus() == ckdv1.ReviewStatus_REVIEW_STATUS_OVERDUE || s.GetWanted() != ckdv1.Wanted_WANTED_UNSPECIFIED
}

// missingText says how many outcomes are missing, and then which.
func missingText(path string, all []outcomefile.Receipt, states []*ckdv1.ReviewState) string {
	counts, wanted, overdue := map[ckdv1.ReviewStatus]int{}, 0, 0
	var lines []string
	for i, s := range states {
		if !isMissing(s) {
			counts[s.GetStatus()]++
			continue
		}
		if s.GetStatus() == ckdv1.ReviewStatus_REVIEW_STATUS_OVERDUE {
			overdue++
		}
		text := fmt.Sprintf("%s:%d: case %s: overdue since %s", path, all[i].Line, cmp.Or(all[i].Case, "not given"), moment(s.GetDue().AsTime()))
		if s.GetWanted() != ckdv1.Wanted_WANTED_UNSPECIFIED {
			wanted++
			text = fmt.Sprintf("%s:%d: case %s: a %s by another source is wanted; read by %s", path, all[i].Line, cmp.Or(all[i].Case, "not given"),
				strings.ReplaceAll(answer.Word("WANTED_", s.GetWanted()), "_", " "), strings.Join(s.GetSources(), ", "))
		}
		lines = append(lines, text)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d outcomes are overdue, and of %d inputs another reading is wanted, of %d receipts.\n", overdue, wanted, len(all))
	var others []string
	for n := range len(ckdv1.ReviewStatus_name) {
		s := ckdv1.ReviewStatus(n)
		if words := reviewWords[s]; counts[s] > 0 && words != "" {
			others = append(others, fmt.Sprintf("%d %s", counts[s], words))
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(&b, "Of the other %d: %s.\n", len(all)-len(lines), strings.Join(others, ", "))
	}
	most := mostLines - 3
	for _, line := range lines[:min(most, len(lines))] {
		fmt.Fprintln(&b, line)
	}
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(&b, "... and %d more: --format csv\n", more)
	}
	return b.String()
}

// reviewWords says of receipts what is known of them, after their number.
var reviewWords = map[ckdv1.ReviewStatus]string{
	ckdv1.ReviewStatus_REVIEW_STATUS_NONE:           "were not to be reviewed",
	ckdv1.ReviewStatus_REVIEW_STATUS_OPEN:           "are not due yet",
	ckdv1.ReviewStatus_REVIEW_STATUS_ANSWERED:       "have all their readings",
	ckdv1.ReviewStatus_REVIEW_STATUS_DUPLICATE:      "repeat an input that was decided before",
	ckdv1.ReviewStatus_REVIEW_STATUS_UNKNOWN_KEY:    "have a key that the ledger lacks",
	ckdv1.ReviewStatus_REVIEW_STATUS_FORGED:         "are no receipts",
	ckdv1.ReviewStatus_REVIEW_STATUS_POLICY_UNKNOWN: "have a policy that no daemon has told",
	ckdv1.ReviewStatus_REVIEW_STATUS_NOT_ALLOWED:    "are of models that are not this identity's",
}

// writeReviews writes what is missing as CSV.
func writeReviews(ctx *cmdContext, all []outcomefile.Receipt, states []*ckdv1.ReviewState) error {
	w := csv.NewWriter(ctx.Stdout)
	_ = w.Write([]string{"line", "case", "status", "due", "wanted", "sources"}) // Error reports what fails
	for i, s := range states {
		if !isMissing(s) {
			continue
		}
		wanted := ""
		if s.GetWanted() != ckdv1.Wanted_WANTED_UNSPECIFIED {
			wanted = answer.Word("WANTED_", s.GetWanted())
		}
		_ = w.Write([]string{strconv.Itoa(all[i].Line), all[i].Case, answer.Word("REVIEW_STATUS_", s.GetStatus()), s.GetDue().AsTime().UTC().Format(time.RFC3339),
			wanted, strings.Join(s.GetSources(), " ")})
	}
	w.Flush()
	return w.Error()
}

// counts prints how many outcomes are overdue, by model, policy, version, stratum and day.
func (c *outcomesMissingCmd) counts(ctx *cmdContext, daemon *client.Client) error {
	request := &ckdv1.ExportOutcomesRequest{Model: c.Model, Overdue: true}
	if c.Format == "csv" {
		request.Format = ckdv1.ExportFormat_EXPORT_FORMAT_CSV
		return exportLines(ctx.Ctx, daemon, request, func(line string) { fmt.Fprintln(ctx.Stdout, line) })
	}
	var rows []overdueRow
	var failed error
	if err := errors.Join(exportLines(ctx.Ctx, daemon, request, func(line string) {
		var r overdueRow
		failed = errors.Join(failed, json.Unmarshal([]byte(line), &r))
		rows = append(rows, r)
	}), failed); err != nil {
		return err
	}
	fmt.Fprint(ctx.Stdout, overdueText(rows))
	return nil
}

// overdueRow is a line of the export of overdue outcomes.
type overdueRow struct {
	Model, Policy, Version, Stratum string
	Start                           time.Time
	Due, Overdue                    uint64
}

func overdueText(rows []overdueRow) string {
	var sum uint64
	for _, r := range rows {
		sum += r.Overdue
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d outcomes are overdue. --receipts FILE says which.\n", sum)
	if sum == 0 {
		return "No outcome is overdue.\n"
	}
	slices.SortStableFunc(rows, func(a, b overdueRow) int { return cmp.Compare(b.Overdue, a.Overdue) })
	most := mostLines - 3
	cells := [][]string{{"model", "policy", "version", "stratum", "from", "due", "overdue"}}
	for _, r := range rows[:min(most, len(rows))] {
		cells = append(cells, []string{r.Model, fmt.Sprintf("%.12s", r.Policy), r.Version, strings.ReplaceAll(r.Stratum, "_", " "), moment(r.Start), fmt.Sprint(r.Due), fmt.Sprint(r.Overdue)})
	}
	table(&b, cells)
	if more := len(rows) - most; more > 0 {
		fmt.Fprintf(&b, "... and %d more: --format csv\n", more)
	}
	return b.String()
}
