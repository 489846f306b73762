package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesDeleteCmd deletes outcomes.
type outcomesDeleteCmd struct {
	daemonFlags
	Before   time.Time         `xor:"what" required:"" format:"2006-01-02" placeholder:"DATE" help:"Delete the outcomes of decisions before this day, as 2026-03-01 (UTC)."`
	Group    string            `xor:"what" required:"" placeholder:"NAME" help:"Delete the outcomes of this group, such as a patient, by the name that clients gave it."`
	Receipts string            `xor:"what" required:"" placeholder:"FILE" help:"Delete the outcomes of the inputs of these receipts: a .csv or .tsv with a header, or .jsonl."`
	Case     []string          `name:"case" placeholder:"ID,..." help:"Of --receipts only the rows of these cases."`
	Columns  map[string]string `mapsep:"," placeholder:"FIELD=NAME,..." help:"Columns, or JSON keys, of --receipts that have another name: receipt=NAME, case=NAME."`
	Reason   string            `required:"" placeholder:"TEXT" help:"Why. It is recorded."`
	By       string            `placeholder:"NAME" help:"Who does it. Beside the identity, it is recorded."`
}

// Help is the long text of ckd outcomes delete --help.
func (*outcomesDeleteCmd) Help() string {
	return `The ledger has no ids of inputs. What belongs to one case is found by its group, if clients gave one, or by the
receipts that the site has kept:

    ckd outcomes delete --addr 127.0.0.1:8590 --group patient-4711 --reason "withdrew consent" --by ann
    ckd outcomes delete --addr 127.0.0.1:8590 --receipts cases.csv --case A17,A18 --reason "withdrew consent" --by ann

Exit codes: 0 all that was chosen is deleted, or none was there; 1 some remains, or the daemon refused; 2 wrong usage.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *outcomesDeleteCmd) Validate() error {
	if c.Receipts == "" && (len(c.Case) > 0 || len(c.Columns) > 0) {
		return errors.New("--case and --columns: expected --receipts FILE with them: an id alone does not find what the ledger has of it")
	}
	return validColumns(c.Columns)
}

// Run deletes, and says exactly what is gone and what remains.
func (c *outcomesDeleteCmd) Run(ctx *cmdContext) error {
	request := &ckdv1.DeleteOutcomesRequest{Before: timestampOf(c.Before), Group: c.Group, Reason: c.Reason, By: c.By}
	if c.Receipts != "" {
		found, err := outcomefile.ReadReceipts(c.Receipts, c.Columns)
		if err != nil {
			return err
		}
		if request.Receipts, err = receiptsOf(found, c.Case); err != nil {
			return fmt.Errorf("%s: %w", c.Receipts, err)
		}
	}
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	var total ckdv1.DeleteOutcomesResponse
	all := request.Receipts
	for {
		request.Receipts = all[:min(receiptsAtOnce, len(all))]
		all = all[len(request.Receipts):]
		reply, err := daemon.Outcomes().DeleteOutcomes(ctx.Ctx, request)
		if err != nil {
			return fmt.Errorf("%d decisions were deleted before: %s", total.Deleted, replay.StatusText(err))
		}
		total.Deleted += reply.GetDeleted()
		total.Left += reply.GetLeft()
		total.Unreadable += reply.GetUnreadable()
		if until := reply.GetUntil(); total.Until == nil || until != nil && until.AsTime().After(total.Until.AsTime()) {
			total.Until = until
		}
		if len(all) == 0 {
			break
		}
	}
	fmt.Fprint(ctx.Stdout, deletedText(&total))
	if total.Left > 0 || total.Unreadable > 0 {
		return fail(exitFault, errors.New("not all that was chosen is deleted"))
	}
	return nil
}

// receiptsAtOnce bounds the receipts of one call, so that it fits the smallest message that daemons take.
const receiptsAtOnce = 2000

// receiptsOf returns the receipts of some cases, or of all where none is named.
func receiptsOf(all []outcomefile.Receipt, cases []string) ([][]byte, error) {
	asked := map[string]bool{}
	for _, name := range cases {
		asked[name] = false
	}
	var chosen [][]byte
	for _, r := range all {
		if _, named := asked[r.Case]; !named && len(cases) > 0 {
			continue
		}
		asked[r.Case] = true
		chosen = append(chosen, r.Receipt)
	}
	for _, name := range cases {
		if !asked[name] {
			return nil, fmt.Errorf("case: no row has %q with a receipt, and nothing was deleted", name)
		}
	}
	return chosen, nil
}

// deletedText says what was deleted, what remains and why.
func deletedText(d *ckdv1.DeleteOutcomesResponse) string {
	text := fmt.Sprintf("%d decisions with outcomes are deleted and overwritten: their receipts, readings, sources and times.\n", d.GetDeleted())
	if d.GetLeft() > 0 {
		text += fmt.Sprintf("%d remain: evidence takes the last of their days on %s; delete them again after that.\n", d.GetLeft(), moment(d.GetUntil().AsTime()))
	}
	if d.GetUnreadable() > 0 {
		text += fmt.Sprintf("%d receipts cannot be read: they were changed, or their key is not among the ledger's.\n", d.GetUnreadable())
	}
	if d.GetDeleted() > 0 {
		text += "Counts of their days, the evidence and the trail stay, and name nobody. Outcomes of these days are refused from now on.\n"
	}
	return text + "Backups, exports and the receipts that clients keep are not reached from here.\n"
}
