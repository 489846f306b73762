package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// logCmd holds the commands about decision logs.
type logCmd struct {
	Verify logVerifyCmd `cmd:"" help:"Say whether decision logs are whole and unchanged."`
	Cat    logCatCmd    `cmd:"" help:"Print chosen records of decision logs."`
}

// logVerifyCmd checks decision logs.
type logVerifyCmd struct {
	Files []string `arg:"" name:"file" help:"Files, in any order: plain or .gz."`
}

// Help is the long text of ckd log verify --help.
func (*logVerifyCmd) Help() string {
	return `Give all files of a daemon together, the rotated ones too: what is missing between them is then found. Found are
an altered byte, a missing or added line, a missing number, and a missing file. Who could write all files could also
make up a whole log.

    ckd log verify decisions.log decisions.log.*

Exit codes: 0 all is as it was written, with notes on what cannot be known; 1 something is not, or a file cannot be
read; 2 wrong usage.`
}

// Run reads the files and prints what it finds.
func (c *logVerifyCmd) Run(ctx *cmdContext) error {
	r, err := decisionlog.Verify(c.Files)
	if err != nil {
		return err
	}
	verdict := "The log is whole"
	switch n := len(r.Faults); {
	case n == 1:
		verdict = "The log is not as it was written: 1 fault"
	case n > 1:
		verdict = fmt.Sprintf("The log is not as it was written: %d faults", n)
	}
	processes := "1 process"
	if r.Processes != 1 {
		processes = fmt.Sprintf("%d processes", r.Processes)
	}
	fmt.Fprintf(ctx.Stdout, "%s. Of %s it has %d records; %d decisions were left out as policies say, and %d records were lost.\n",
		verdict, processes, r.Records, r.LeftOut, r.Lost)
	for _, f := range r.Faults {
		fmt.Fprintln(ctx.Stdout, f)
	}
	for _, f := range r.Notes {
		fmt.Fprintf(ctx.Stdout, "note: %v\n", f)
	}
	if len(r.Faults) > 0 {
		return fail(exitFault, nil)
	}
	return nil
}

// logCatCmd prints records.
type logCatCmd struct {
	Files []string `arg:"" name:"file" help:"Files: plain or .gz."`

	Model  string  `placeholder:"NAME" help:"Only of this model."`
	Action string  `placeholder:"NAME" help:"Only retain, defer or observe."`
	Reason string  `placeholder:"NAME" help:"Only with this reason."`
	Policy string  `placeholder:"HASH" help:"Only under this policy; the beginning of its hash suffices."`
	ID     string  `name:"id" placeholder:"TEXT" help:"Only of this input."`
	Keys   string  `name:"receipt-keys" type:"path" placeholder:"FILE" help:"Finds --id among hashed ids. The file of the keys of receipts."`
	Since  instant `placeholder:"TIME" help:"Only from then on. A day or a time, as 2026-03-01 or 2026-03-01T12:00:00Z."`
	Until  instant `placeholder:"TIME" help:"Only before then."`
	Format string  `enum:"jsonl,csv" default:"jsonl" help:"Form of the output: ${enum}. (${default})"`
}

// Help is the long text of ckd log cat --help.
func (*logCatCmd) Help() string {
	return `Records are printed as they stand in the files, or with --format csv as a table without the vectors of classes.

    ckd log cat --model fetal-health --action retain --since 2026-03-01 decisions.log
    ckd log cat --id exam-4711 --receipt-keys receipt-keys decisions.log

Exit codes: 0 all lines were read; 1 some are not of a decision log, or a file cannot be read; 2 wrong usage.`
}

// instant is a day or a time on the command line.
type instant struct{ time.Time }

// UnmarshalText reads a day, in UTC, or a time.
func (i *instant) UnmarshalText(text []byte) (err error) {
	if i.Time, err = time.Parse(time.DateOnly, string(text)); err != nil {
		i.Time, err = time.Parse(time.RFC3339, string(text))
	}
	if err != nil {
		return fmt.Errorf("%q: expected a day or a time, as 2026-03-01 or 2026-03-01T12:00:00Z", text)
	}
	return nil
}

// Run prints the records that the flags choose.
func (c *logCatCmd) Run(ctx *cmdContext) error {
	hashes, err := c.hashes()
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(ctx.Stdout, 1<<16)
	table := csv.NewWriter(buffered)
	if c.Format == "csv" {
		if err := table.Write(logColumns()); err != nil {
			return err
		}
	}
	faults := 0
	for _, path := range c.Files {
		err := decisionlog.Each(path, func(l *decisionlog.Line) error {
			d, err := l.Decision()
			switch {
			case l.Torn():
				return nil // it is being written
			case err != nil:
				faults++
				fmt.Fprintf(ctx.Stderr, "ckd: %s:%d: %v\n", l.File, l.Number, err)
				return nil
			case d == nil || !c.admits(d, hashes):
				return nil
			case c.Format == "csv":
				return table.Write(logRow(d))
			}
			_, err = buffered.Write(l.Text)
			return err
		})
		if err != nil {
			return errors.Join(err, buffered.Flush())
		}
	}
	table.Flush()
	if err := errors.Join(table.Error(), buffered.Flush()); err != nil {
		return err
	}
	if faults > 0 {
		return fail(exitFault, nil)
	}
	return nil
}

// hashes returns what the id may be in records with hashed ids.
func (c *logCatCmd) hashes() (hashes []string, err error) {
	if c.Keys == "" {
		return nil, nil
	}
	if c.ID == "" {
		return nil, usageError("--receipt-keys means nothing without --id")
	}
	text, err := os.ReadFile(c.Keys)
	if err != nil {
		return nil, err
	}
	keys, err := receipt.ParseKeys(c.Keys, text)
	if err != nil {
		return nil, err
	}
	for _, hash := range keys.IDHashes([]byte(c.ID)) {
		hashes = append(hashes, fmt.Sprintf("%016x", hash))
	}
	return hashes, nil
}

// admits reports whether the flags choose a record.
func (c *logCatCmd) admits(d *decisionlog.Decision, hashes []string) bool {
	return (c.Model == "" || d.Model == c.Model) && (c.Action == "" || d.Action == c.Action) && (c.Reason == "" || d.Reason == c.Reason) &&
		strings.HasPrefix(d.PolicyHash, c.Policy) &&
		(c.ID == "" || d.ID == c.ID || d.IDHash != "" && slices.Contains(hashes, d.IDHash)) &&
		!d.Time.Before(c.Since.Time) && (c.Until.IsZero() || d.Time.Before(c.Until.Time))
}

// logColumns returns the header of the table of records.
func logColumns() []string {
	columns := []string{"number", "time", "id", "id_hash", "model", "model_version", "policy_hash", "action", "reason", "gate", "score", "value",
		"threshold", "deciding_class", "predicted", "stratum", "risk", "passes", "settled", "review", "propensity", "share", "trace_id"}
	for i := range decomp.NumScores {
		columns = append(columns, decomp.Score(i).String())
	}
	return columns
}

// logRow returns the cells of a record. Those of unknown values are empty.
func logRow(d *decisionlog.Decision) []string {
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	}
	row := []string{strconv.FormatUint(d.Number, 10), d.Time.Format(time.RFC3339Nano), d.ID, d.IDHash, d.Model, d.ModelVersion, d.PolicyHash, d.Action,
		d.Reason, d.Gate, d.Score, number(d.Value), number(d.Threshold), d.DecidingClass, d.Predicted, d.Stratum, number(d.Risk), strconv.Itoa(d.Passes),
		strconv.FormatBool(d.Settled), strconv.FormatBool(d.Review), number(d.Propensity), number(d.Share), d.TraceID}
	for i := range decomp.NumScores {
		cell := ""
		if v, defined := d.Scores[decomp.Score(i).String()]; defined {
			cell = number(&v)
		}
		row = append(row, cell)
	}
	return row
}
