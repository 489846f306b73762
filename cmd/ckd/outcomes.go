package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesCmd holds the commands about outcomes: one begins a ledger, one plans, the others speak to a
// daemon with a ledger.
type outcomesCmd struct {
	Begin   outcomesBeginCmd   `cmd:"" help:"Begin a ledger in a folder that holds none."`
	Plan    outcomesPlanCmd    `cmd:"" help:"Say what audits will cost and show, from a labelled recording and a policy."`
	Send    outcomesSendCmd    `cmd:"" help:"Send the truth about inputs, with the receipts of their decisions."`
	Missing outcomesMissingCmd `cmd:"" help:"Say which reviews are overdue, by the receipts that a site has kept, or how many."`
	Import  outcomesImportCmd  `cmd:"" help:"Enter outcomes that ckd outcomes export wrote, as they were first reported."`
	Export  outcomesExportCmd  `cmd:"" help:"Print every outcome, or the trail of what was entered, cleared and deleted."`
	Figures outcomesFiguresCmd `cmd:"" help:"Say of each policy whether it keeps its promise, and show the figures."`
	Clear   outcomesClearCmd   `cmd:"" help:"Clear an alarm, with a reason, which is recorded."`
	Raise   outcomesRaiseCmd   `cmd:"" help:"Raise the line of a model, with a reason, which is recorded."`
	Verify  outcomesVerifyCmd  `cmd:"" help:"Read a whole ledger and name every fault: also while a daemon serves it."`
	Backup  outcomesBackupCmd  `cmd:"" help:"Copy a ledger to a file: also while a daemon serves it."`
	Restore outcomesRestoreCmd `cmd:"" help:"Put a backup into a folder, while no daemon serves it."`
	Delete  outcomesDeleteCmd  `cmd:"" help:"Delete outcomes by date, group or receipt; figures and the trail stay."`
}

// outcomesBeginCmd begins a ledger.
type outcomesBeginCmd struct {
	Ledger    string `required:"" placeholder:"DIR" help:"The folder, which is made if there is none."`
	IfMissing bool   `help:"Leave a ledger that is there as it is, and succeed: for a script before the first start."`
}

// Help is the long text of ckd outcomes begin --help.
func (*outcomesBeginCmd) Help() string {
	return `A daemon never begins a ledger by itself: a folder that was emptied or mistyped would look like a promise
without any outcome against it. Do not run this before every start, as --if-missing allows: a volume that was lost
would pass for a beginning.

    ckd outcomes begin --ledger /var/lib/ckd/ledger

Exit codes: 0 the ledger is there; 1 the folder holds one already, or cannot be written; 2 wrong usage.`
}

// Run makes the ledger.
func (c *outcomesBeginCmd) Run(ctx *cmdContext) error {
	switch err := ledger.Begin(c.Ledger, ledger.Options{}); {
	case c.IfMissing && errors.Is(err, ledger.ErrExists):
		fmt.Fprintf(ctx.Stdout, "the ledger in %s is left as it is\n", c.Ledger)
	case err != nil:
		return err
	default:
		fmt.Fprintf(ctx.Stdout, "a new ledger is in %s\n", c.Ledger)
	}
	return nil
}

// outcomesSendCmd sends a file of outcomes.
type outcomesSendCmd struct {
	daemonFlags
	File    string            `required:"" placeholder:"FILE" help:"Outcomes: .csv or .tsv with a header."`
	Columns map[string]string `mapsep:"," placeholder:"FIELD=NAME,..." help:"Columns, or JSON keys, that have another name in the file, as truth=label,receipt=ckd_receipt."`
	Source  string            `placeholder:"NAME" help:"Who found out the truth, for rows that do not say. An opaque name."`
	Quiet   bool              `help:"Print only the outcomes that were not counted."`

	Reconnect time.Duration `default:"30s" placeholder:"TIME" help:"How long to wait for a daemon that is gone to come back. 0 gives up at once. (${default})"`
}

// Help is the long text of ckd outcomes send --help.
func (*outcomesSendCmd) Help() string {
	return `A row has a receipt, the true class by its name, and optionally source, time, saw_model (true or false) and
kind (reading, biopsy or follow-up). Rows without a truth or without a receipt are left out and counted. The
file is read whole before anything is sent. Sending it again does no harm.

    ckd outcomes send --addr 127.0.0.1:8590 --file labels.csv --columns truth=label --source grading-room

Exit codes: 0 every outcome was counted; 1 some were not, the file has none, or the file or the daemon has a fault; 2 wrong usage.`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *outcomesSendCmd) Validate() error {
	for field := range c.Columns {
		if !slices.Contains(outcomefile.Fields(), field) {
			return fmt.Errorf("--columns %s=%s: expected one of %s before the =", field, c.Columns[field], strings.Join(outcomefile.Fields(), ", "))
		}
	}
	if c.Reconnect < 0 {
		return fmt.Errorf("--reconnect %v: expected 0 or more", c.Reconnect)
	}
	return nil
}

// Run sends the file, and prints what became of each outcome.
func (c *outcomesSendCmd) Run(ctx *cmdContext) error {
	file, err := outcomefile.Read(c.File, outcomefile.Options{Columns: c.Columns, Source: c.Source})
	if err != nil {
		return err
	}
	for what, n := range map[string]int{"truth yet": file.Open, "receipt": file.WithoutReceipt} {
		if n > 0 {
			fmt.Fprintf(ctx.Stderr, "ckd: %s: %d rows have no %s and are left out\n", c.File, n, what)
		}
	}
	if len(file.Unused) > 0 {
		fmt.Fprintf(ctx.Stderr, "ckd: %s: not used, and not sent: %s\n", c.File, strings.Join(file.Unused, ", "))
	}
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	answers, err := daemon.ReportOutcomes(ctx.Ctx, file.Outcomes, client.Reconnect{Disabled: c.Reconnect == 0, Limit: c.Reconnect})
	tally := map[string]int{}
	for i, a := range answers {
		word := statusWord(a.GetStatus())
		tally[word]++
		if !c.Quiet || a.GetError() != nil {
			fmt.Fprintf(ctx.Stdout, "%s:%d: %s\n", c.File, file.Lines[i], answerText(a))
		}
	}
	if len(tally) > 0 {
		fmt.Fprintf(ctx.Stderr, "ckd: %s\n", tallyText(tally))
	}
	if err != nil {
		return fmt.Errorf("%d of %d outcomes were answered: %s", len(answers), len(file.Outcomes), replay.StatusText(err))
	}
	if slices.ContainsFunc(answers, func(a *ckdv1.OutcomeAnswer) bool { return a.GetError() != nil }) {
		return fail(exitFault, nil)
	}
	return nil
}

// tallyText counts statuses, in their order.
func tallyText(tally map[string]int) string {
	var counted []string
	for n := range len(ckdv1.OutcomeStatus_name) {
		if word := statusWord(ckdv1.OutcomeStatus(n)); tally[word] > 0 {
			counted = append(counted, fmt.Sprintf("%d %s", tally[word], word))
		}
	}
	return strings.Join(counted, ", ")
}

// statusWord returns a status in words.
func statusWord(s ckdv1.OutcomeStatus) string {
	return strings.ReplaceAll(answer.Word("OUTCOME_STATUS_", s), "_", " ")
}

// answerText says what became of one outcome.
func answerText(a *ckdv1.OutcomeAnswer) string {
	text := statusWord(a.GetStatus())
	if a.GetWanted() == ckdv1.Wanted_WANTED_THIRD_READ {
		text += ", by a third source: two disagree"
	}
	if e := a.GetError(); e != nil {
		return text + ": " + e.GetMessage()
	}
	text = fmt.Sprintf("%s, predicted %s at %s", text, a.GetPredicted(), a.GetDecided().AsTime().Format(time.RFC3339))
	if a.GetNote() != "" {
		text += ": " + a.GetNote()
	}
	return text
}

// outcomesExportCmd prints what the ledger holds.
type outcomesExportCmd struct {
	daemonFlags
	Model  string    `placeholder:"NAME" help:"Only of this model."`
	From   time.Time `format:"2006-01-02" placeholder:"DATE" help:"Only decisions from this day on, as 2026-03-01 (UTC)."`
	To     time.Time `format:"2006-01-02" placeholder:"DATE" help:"Only decisions before this day."`
	Trail  bool      `xor:"what" help:"Print who changed, cleared and deleted what and when, in place of the outcomes; always as JSON."`
	Issued bool      `xor:"what" help:"Print what each daemon issued: hour, process, policy, model version, stratum and counts."`
	Format string    `enum:"csv,jsonl" default:"jsonl" help:"Form of the lines: ${enum}. (${default})"`
}

// Run prints the lines as they come.
func (c *outcomesExportCmd) Run(ctx *cmdContext) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	request := &ckdv1.ExportOutcomesRequest{Model: c.Model, From: timestampOf(c.From), To: timestampOf(c.To), Trail: c.Trail, Issued: c.Issued}
	if c.Format == "csv" {
		request.Format = ckdv1.ExportFormat_EXPORT_FORMAT_CSV
	}
	out := bufio.NewWriter(ctx.Stdout)
	err = exportLines(ctx.Ctx, daemon, request, func(line string) { fmt.Fprintln(out, line) }) // Flush reports what fails
	return errors.Join(err, out.Flush())
}

// exportLines calls each with the lines of an export.
func exportLines(ctx context.Context, daemon *client.Client, request *ckdv1.ExportOutcomesRequest, each func(line string)) error {
	stream, err := daemon.Outcomes().ExportOutcomes(ctx, request)
	if err != nil {
		return errors.New(replay.StatusText(err))
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the export is not complete: %s", replay.StatusText(err))
		}
		for _, line := range part.GetLines() {
			each(line)
		}
	}
}

func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// outcomesClearCmd clears an alarm.
type outcomesClearCmd struct {
	daemonFlags
	Model   string `required:"" placeholder:"NAME" help:"The model."`
	Policy  string `placeholder:"HASH" help:"Hash of its policy, or the beginning of it; may be left out where one alarm is up."`
	Version string `name:"model-version" placeholder:"TEXT" help:"Version of the model; may be left out where one alarm is up."`
	Reason  string `required:"" placeholder:"TEXT" help:"Why the alarm may be cleared. It is recorded."`
	By      string `placeholder:"NAME" help:"Who does it. Beside the identity, it is recorded."`
}

// Run finds the alarm and clears it.
func (c *outcomesClearCmd) Run(ctx *cmdContext) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	list, err := daemon.Outcomes().ListPromises(ctx.Ctx, &ckdv1.ListPromisesRequest{Model: c.Model})
	if err != nil {
		return errors.New(replay.StatusText(err))
	}
	up, err := c.find(list.GetPromises())
	if err != nil {
		return err
	}
	reply, err := daemon.Outcomes().ClearAlarm(ctx.Ctx, &ckdv1.ClearAlarmRequest{
		PolicyHash: up.GetPolicy().GetHash(), ModelVersion: up.GetModelVersion(), Reason: c.Reason, By: c.By,
	})
	if err != nil {
		return errors.New(replay.StatusText(err))
	}
	fmt.Fprintf(ctx.Stdout, "cleared: %s\n%s\n", promiseName(up), reply.GetPromise().GetStatement())
	return nil
}

// find returns the one promise that is violated and fits the flags.
func (c *outcomesClearCmd) find(promises []*ckdv1.PromiseFigures) (*ckdv1.Promise, error) {
	var up []*ckdv1.Promise
	for _, figures := range promises {
		p := figures.GetPromise()
		if p.GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED && strings.HasPrefix(p.GetPolicy().GetHash(), c.Policy) &&
			(c.Version == "" || p.GetModelVersion() == c.Version) {
			up = append(up, p)
		}
	}
	switch len(up) {
	case 0:
		return nil, fmt.Errorf("model %q: no alarm is up for such a policy and version", c.Model)
	case 1:
		return up[0], nil
	}
	var names []string
	for _, p := range up {
		names = append(names, promiseName(p))
	}
	return nil, usageError("model %q: %d alarms are up, expected --policy and --model-version to name one of:\n%s", c.Model, len(up), strings.Join(names, "\n"))
}

// promiseName names a promise as the flags of ckd outcomes clear do.
func promiseName(p *ckdv1.Promise) string {
	return fmt.Sprintf("--model %s --policy %.12s --model-version %s", p.GetPolicy().GetModel(), p.GetPolicy().GetHash(), p.GetModelVersion())
}
