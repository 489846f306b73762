package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// outcomesVerifyCmd verifies a ledger.
type outcomesVerifyCmd struct {
	Ledger      string `required:"" placeholder:"DIR" help:"The folder of the ledger, which a daemon may be serving."`
	ReceiptKeys string `placeholder:"FILE" help:"The keys of receipts: what is stored of each receipt is then held against its seal."`
}

// Help is the long text of ckd outcomes verify --help.
func (*outcomesVerifyCmd) Help() string {
	return `Reads every row: its checksum, the trees and indices of the file, the sums of what was issued; with the keys of
receipts the seal of every receipt too. It changes nothing.

    ckd outcomes verify --ledger /var/lib/ckd/ledger --receipt-keys receipt-keys

Exit codes: 0 no fault; 1 faults, or the ledger cannot be read; 2 wrong usage.`
}

// Run verifies, and prints the faults.
func (c *outcomesVerifyCmd) Run(ctx *cmdContext) error {
	keys, err := readKeys(c.ReceiptKeys)
	if err != nil {
		return err
	}
	const most = mostLines - 4
	var faults []string
	checked, err := ledger.Verify(ctx.Ctx, c.Ledger, keys, func(fault string) {
		if len(faults) < most {
			faults = append(faults, fault)
		}
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	fmt.Fprintf(ctx.Stdout, "%s: %d faults in %s\n", c.Ledger, checked.Faults, checkedText(&checked))
	switch {
	case keys == nil:
		fmt.Fprintln(ctx.Stdout, "The seals of receipts were not checked: --receipt-keys FILE does.")
	case checked.UnknownKey > 0:
		fmt.Fprintf(ctx.Stdout, "%d seals were compared, %d were not: their key is not in %s.\n", checked.Sealed, checked.UnknownKey, c.ReceiptKeys)
	default:
		fmt.Fprintf(ctx.Stdout, "%d seals were compared.\n", checked.Sealed)
	}
	for _, f := range faults {
		fmt.Fprintln(ctx.Stdout, f)
	}
	if checked.Faults == 0 {
		return nil
	}
	if more := checked.Faults - uint64(len(faults)); more > 0 {
		fmt.Fprintf(ctx.Stdout, "... and %d more\n", more)
	}
	return fail(exitFault, errors.New("put a backup back: ckd outcomes restore"))
}

func checkedText(c *ledger.Checked) string {
	return fmt.Sprintf("%d decisions with %d readings and all other rows", c.Decisions, c.Readings)
}

// readKeys reads a file of receipt keys; nil for no path.
func readKeys(path string) (*receipt.Keys, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return receipt.ParseKeys(path, text)
}

// outcomesBackupCmd copies a ledger.
type outcomesBackupCmd struct {
	Ledger string `required:"" placeholder:"DIR" help:"The folder of the ledger, which a daemon may be serving."`
	Out    string `required:"" placeholder:"FILE" help:"The copy. A file of that name is replaced once the copy is whole."`
}

// Help is the long text of ckd outcomes backup --help.
func (*outcomesBackupCmd) Help() string {
	return `Copies the ledger as of now to one file. It needs the rights of the daemon's user on the folder, in which it
notes the time for the alert on old backups. A copy by other means may be torn.

    ckd outcomes backup --ledger /var/lib/ckd/ledger --out /backup/ledger-2026-11-03.db

Exit codes: 0 the copy is whole and on the disk; 1 it is not; 2 wrong usage.`
}

// Run makes the copy.
func (c *outcomesBackupCmd) Run(ctx *cmdContext) error {
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(c.Ledger)
	if err != nil {
		return err
	}
	if filepath.Dir(out) == folder {
		return usageError("--out %s lies in the folder of the ledger, expected another folder, on another disk", c.Out)
	}
	if info, err := os.Stat(out); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--out %s: expected the path of a file", c.Out)
	}
	if err := ledger.Backup(ctx.Ctx, c.Ledger, out, ledger.Options{Now: clock.Now}); err != nil {
		return interrupted(ctx, err)
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(ctx.Stdout, "%s: the ledger of %s as of now, %d bytes. ckd outcomes restore checks it and puts it back.\n", c.Out, c.Ledger, info.Size())
	return nil
}

// outcomesRestoreCmd puts a backup back.
type outcomesRestoreCmd struct {
	From     string `required:"" placeholder:"FILE" help:"The copy that ckd outcomes backup made."`
	Ledger   string `required:"" placeholder:"DIR" help:"The folder that is to hold the ledger. It is made if there is none."`
	By       string `required:"" placeholder:"NAME" help:"Who restores. It is recorded."`
	Reason   string `required:"" placeholder:"TEXT" help:"Why. It is recorded."`
	SetAside bool   `help:"Replace the ledger in the folder although it has what the backup lacks. It is kept beside."`
}

// Help is the long text of ckd outcomes restore --help.
func (*outcomesRestoreCmd) Help() string {
	return `Checks the copy row by row, and puts it into the folder. A ledger that is there is kept in a folder beside; one
that has what the backup lacks is replaced with --set-aside alone. Stop the daemon before.

    ckd outcomes restore --from /backup/ledger-2026-11-03.db --ledger /var/lib/ckd/ledger --by ann --reason "disk 2 failed"

The daemons of the fleet then tell the ledger again what they issued since. Send again the outcomes that came after
the backup.

Exit codes: 0 the backup is in place; 1 it is not, and nothing has changed; 2 wrong usage.`
}

// Run restores, and says what is to be done after it.
func (c *outcomesRestoreCmd) Run(ctx *cmdContext) error {
	done, err := ledger.Restore(ctx.Ctx, c.From, c.Ledger, ledger.RestoreOptions{Options: ledger.Options{Now: clock.Now}, By: c.By, Reason: c.Reason, SetAside: c.SetAside})
	switch {
	case errors.Is(err, ledger.ErrLater):
		return fmt.Errorf("%w: to lose that, say --set-aside, or move the files away", err)
	case err != nil:
		return interrupted(ctx, err)
	}
	fmt.Fprintf(ctx.Stdout, "%s holds the ledger of %s: no fault in %s\n", c.Ledger, c.From, checkedText(&done.Checked))
	if done.Aside != "" {
		fmt.Fprintf(ctx.Stdout, "The ledger that was there is in %s.\n", done.Aside)
	}
	fmt.Fprintf(ctx.Stdout, `Generation %d begins. Start the daemon: the others tell it again by themselves what they issued since the backup.
Outcomes that came after the backup are not in it: send them again. What came twice counts once.
`, done.Generation)
	return nil
}
