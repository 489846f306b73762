package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Output prints answers and counts them.
type Output struct {
	w      *bufio.Writer
	detail ckdv1.Detail
	quiet  bool // nothing is printed

	decided   int
	early     int // decided before the last pass
	passes    int // passes used
	actions   map[string]int
	latencies []time.Duration // latencies of decided inputs
	failed    answer.Refusals
}

// NewOutput returns an output whose answers carry a detail. A quiet one prints nothing and only
// counts.
func NewOutput(w io.Writer, detail ckdv1.Detail, quiet bool) *Output {
	return &Output{w: bufio.NewWriter(w), detail: detail, quiet: quiet}
}

// Answered counts the inputs with a reply, decided or not.
func (o *Output) Answered() int { return o.decided + o.failed.Count }

// Err returns an error if some of the inputs have no decision.
func (o *Output) Err(inputs int) error { return o.failed.Err(inputs, "have no decision") }

// Add prints the answers of a batch and flushes, so that a slow replay can be watched.
func (o *Output) Add(replies []Reply) error {
	lines := answer.NewEncoder(o.w)
	for _, a := range replies {
		var l any
		if a.Err != nil {
			r := refuse(a)
			o.failed.Add(r)
			l = r
		} else {
			decided := answer.FromWire(a.Index, a.Decomposition, o.detail)
			o.count(decided, a)
			l = decided
		}
		if o.quiet {
			continue
		}
		if err := lines.Encode(l); err != nil {
			return fmt.Errorf("input %d: %w", a.Index, err)
		}
	}
	return o.w.Flush()
}

func (o *Output) count(l *answer.Answer, a Reply) {
	o.decided++
	if a.Settled() {
		o.early++
	}
	o.passes += l.Passes
	o.latencies = append(o.latencies, a.Latency)
	if o.actions == nil {
		o.actions = map[string]int{}
	}
	if l.Decision != nil {
		o.actions[l.Decision.Action]++
	}
}

// refuse returns the line of an input without a result.
func refuse(a Reply) *answer.Refusal {
	// The message begins with the input's number, which the index field already has.
	message := strings.TrimPrefix(StatusText(a.Err), fmt.Sprintf("input %q: ", strconv.Itoa(a.Index)))
	if e := (*client.InputError)(nil); !errors.As(a.Err, &e) || e.Unanswered {
		message = "no answer: " + message
	}
	word := answer.Word("ERROR_REASON_", client.Reason(a.Err))
	if client.Reason(a.Err) == ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		// The daemon gave no reason, so use the status code of the connection.
		word = answer.Word("", code.Code(status.Code(a.Err)))
	}
	return &answer.Refusal{Index: a.Index, Error: answer.Reason{Reason: word, Message: message}}
}

// StatusText returns the message of the gRPC status in err, without the texts that wrap it.
func StatusText(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}

// Summary prints throughput, latencies of the inputs that were decided, and counts of actions.
func (o *Output) Summary(w io.Writer, elapsed time.Duration) {
	seconds := elapsed.Seconds()
	fmt.Fprintf(w, "ckd: %d inputs decided, %d not, in %.3f s: %.0f inputs/s, %.0f passes/s\n",
		o.decided, o.failed.Count, seconds, float64(o.decided)/seconds, float64(o.passes)/seconds)
	if o.decided == 0 {
		return
	}
	slices.Sort(o.latencies)
	fmt.Fprintf(w, "ckd: latency p50 %v, p90 %v, p99 %v, max %v\n", percentile(o.latencies, 50),
		percentile(o.latencies, 90), percentile(o.latencies, 99), percentile(o.latencies, 100))
	fmt.Fprintf(w, "ckd: retain %d, defer %d, observe %d\n", o.actions["retain"], o.actions["defer"], o.actions["observe"])
}

// Saving prints how many passes early stopping saved. More passes are sent than used while the
// daemon is away, since it cannot say then which inputs it has decided.
func (o *Output) Saving(w io.Writer, ruleInForce bool, passes, sent int) {
	if !ruleInForce && o.early == 0 {
		fmt.Fprintf(w, "ckd: no early stopping: the daemon has no rule in force for %d passes of this model, or full-pass checks have stopped it\n", passes)
		return
	}
	if o.decided == 0 || sent == 0 {
		return
	}
	inputs := o.decided + o.failed.Count
	fmt.Fprintf(w, "ckd: %d of %d inputs decided early: %.1f of %d passes used on average\n",
		o.early, inputs, float64(o.passes)/float64(o.decided), passes)
	fmt.Fprintf(w, "ckd: %d passes sent, %d saved: %.1fx fewer\n", sent, inputs*passes-sent, float64(inputs*passes)/float64(sent))
}

// percentile returns the p-th percentile of sorted values by the nearest rank: the least value that
// at least p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1].Round(time.Microsecond)
}
