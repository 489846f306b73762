package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes, documented in docs/commands.md.
const (
	exitOK          = 0
	exitFault       = 1   // the command ran and found or met a fault
	exitUsage       = 2   // the command line is wrong
	exitUncertified = 3   // ckd calibrate: nothing certifies or no gain is shown, and no policy was written
	exitInterrupted = 130 // ckd serve: a SIGINT came while it stopped
)

const description = `ckd, the uncertainty daemon beside a model server: S stochastic passes in; the
per-class epistemic vector, where it can be trusted, and a deferral decision out.`

// cli holds the commands. Each has a file of its own name.
type cli struct {
	Demo      demoCmd        `cmd:"" help:"Start the daemon here, stream a real recording through it, and show what comes back."`
	Serve     serveCmd       `cmd:"" help:"Run the daemon."`
	Check     checkCmd       `cmd:"" help:"Say what is wrong with policy files, or what they mean."`
	Decompose decomposeCmd   `cmd:"" help:"Decompose recorded passes, input by input."`
	Evaluate  evaluateCmd    `cmd:"" help:"Say from labelled passes what deferral is worth, with intervals and diagnosis."`
	Calibrate calibrateCmd   `cmd:"" help:"Make policies from labelled recordings, and from outcomes."`
	Replay    replayCmd      `cmd:"" help:"Stream recorded passes to a running daemon."`
	Outcomes  outcomesCmd    `cmd:"" help:"Send back what was true, and read what the ledger made of it."`
	Receipts  receiptsCmd    `cmd:"" help:"Open receipts."`
	Log       logCmd         `cmd:"" help:"Read and check decision logs."`
	Whatif    whatifCmd      `cmd:"" help:"Say what another policy would have decided about logged decisions."`
	Health    healthcheckCmd `cmd:"" name:"healthcheck" help:"Ask a daemon on this machine whether it is ready."`
	Version   versionCmd     `cmd:"" help:"Say which build this is."`
}

// cmdContext is what a command may use of its surroundings.
type cmdContext struct {
	Ctx            context.Context
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(&cmdContext{ctx, os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// run runs the command line and returns the exit code.
func run(ctx *cmdContext, args []string) (code int) {
	parser, err := newParser(ctx)
	if err != nil {
		fmt.Fprintf(ctx.Stderr, "ckd: %v\n", err)
		return exitFault
	}
	// kong ends --help by calling Exit; the panic leaves Parse.
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exitRequest)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(ctx.Stderr, "ckd: %v\n", err)
		if parse := (*kong.ParseError)(nil); errors.As(err, &parse) && parse.Context.Command() != "" {
			fmt.Fprintf(ctx.Stderr, "Run \"ckd %s --help\" for its flags.\n", strings.TrimSpace(parse.Context.Command()))
		} else {
			fmt.Fprintln(ctx.Stderr, `Run "ckd --help" for the commands.`)
		}
		return exitUsage
	}
	if err := command.Run(ctx); err != nil {
		code = exitFault
		if f := (*failure)(nil); errors.As(err, &f) {
			code = f.code
		}
		if text := err.Error(); text != "" {
			fmt.Fprintf(ctx.Stderr, "ckd: %s\n", text)
		}
		return code
	}
	return exitOK
}

// newParser returns the parser of the command line. A command that stands for its group, as ckd
// evaluate does, has no name of its own.
func newParser(ctx *cmdContext) (*kong.Kong, error) {
	parser, err := kong.New(&cli{},
		kong.Name("ckd"),
		kong.Description(description),
		kong.Writers(ctx.Stdout, ctx.Stderr),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(printHelp),
	)
	if err != nil {
		return nil, err
	}
	parser.Model.HelpFlag.Hidden = true
	for _, group := range parser.Model.Children {
		if group.DefaultCmd != nil {
			group.DefaultCmd.Name = ""
		}
	}
	return parser, nil
}

// printHelp prints the help of a command: of a group that of the command that stands for it, and the
// names of the others.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil || node.DefaultCmd == nil {
		return kong.DefaultHelpPrinter(o, ctx)
	}
	implied := *ctx
	implied.Path = append(slices.Clone(ctx.Path), &kong.Path{Parent: node, Command: node.DefaultCmd})
	if err := kong.DefaultHelpPrinter(o, &implied); err != nil {
		return err
	}
	fmt.Fprintln(ctx.Stdout, "\nCommands beside it:")
	for _, other := range node.Children {
		if other != node.DefaultCmd {
			fmt.Fprintf(ctx.Stdout, "  %-24s%s\n", other.Path(), other.Help)
		}
	}
	return nil
}

// exitRequest is the exit code that kong asked for.
type exitRequest int

// failure is an error with its own exit code.
type failure struct {
	code int
	err  error
}

// fail gives an error an exit code. A nil error prints nothing: the command has already printed
// what it found.
func fail(code int, err error) error { return &failure{code, err} }

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }
