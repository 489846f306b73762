package main

import (
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesImportCmd enters an export.
type outcomesImportCmd struct {
	daemonFlags
	File   string `required:"" placeholder:"FILE" help:"What ckd outcomes export --format jsonl wrote."`
	Reason string `required:"" placeholder:"TEXT" help:"Why. It is recorded."`
	By     string `placeholder:"NAME" help:"Who does it. Beside the identity, it is recorded."`
}

// Help is the long text of ckd outcomes import --help.
func (*outcomesImportCmd) Help() string {
	return `Every reading is entered as it was first reported. The daemons must have told their policies, and the ledger must
have the keys of the receipts. Importing again does no harm. An export has no alarms, no evidence and not what was
issued: to move a whole ledger, restore a backup.

    ckd outcomes import --addr 127.0.0.1:8590 --file outcomes.jsonl --reason "lost after the last backup" --by ann

Exit codes: 0 every reading is in the ledger; 1 some are not, or the file or the daemon has a fault; 2 wrong usage.`
}

// importedAtOnce bounds the readings of one call, so that it fits the smallest message that daemons take.
const importedAtOnce = 500

// Run sends the file, and prints what was refused.
func (c *outcomesImportCmd) Run(ctx *cmdContext) error {
	all, lines, err := outcomefile.ReadExport(c.File)
	if err != nil {
		return err
	}
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	tally, refused := map[string]int{}, 0
	for from := 0; from < len(all); from += importedAtOnce {
		part := all[from:min(from+importedAtOnce, len(all))]
		reply, err := daemon.Outcomes().ImportOutcomes(ctx.Ctx, &ckdv1.ImportOutcomesRequest{Outcomes: part, Reason: c.Reason, By: c.By})
		if err != nil {
			return fmt.Errorf("%d of %d readings were answered: %s", from, len(all), replay.StatusText(err))
		}
		for i, a := range reply.GetAnswers() {
			tally[statusWord(a.GetStatus())]++
			if a.GetError() == nil {
				continue
			}
			if refused++; refused <= mostLines-2 {
				fmt.Fprintf(ctx.Stdout, "%s:%d: %s\n", c.File, lines[from+i], answerText(a))
			}
		}
	}
	if more := refused - (mostLines - 2); more > 0 {
		fmt.Fprintf(ctx.Stdout, "... and %d more\n", more)
	}
	fmt.Fprintf(ctx.Stderr, "ckd: %s\n", tallyText(tally))
	if refused > 0 {
		return fail(exitFault, fmt.Errorf("%d of %d readings are not in the ledger", refused, len(all)))
	}
	return nil
}
