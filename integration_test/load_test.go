package integration_test

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// load sends a recording through a client again and again, in batches on sessions and in calls.
// Every input has a number, which is its id. load keeps all results.
type load struct {
	t                       *testing.T
	client                  *client.Client
	values                  []float32 // [inputs][passes][classes]
	inputs, passes, classes int
	sessions                []*client.Session
	begun                   atomic.Int64 // number of inputs

	mu       sync.Mutex
	results  map[int][]client.Result // by the number of the input
	answers  map[string]int          // number of decisions by the replica that made them
	streamed map[string]int          // number of decisions on sessions by replica
}

const (
	loadBatch = 8
	loadModel = "fetal-health"
)

// patient retries for longer than any test keeps a daemon away.
var patient = client.Reconnect{Limit: hang, MaxDelay: 200 * time.Millisecond}

func newLoad(t *testing.T, c *client.Client) *load {
	t.Helper()
	l := &load{t: t, client: c, results: map[int][]client.Result{}, answers: map[string]int{}, streamed: map[string]int{}}
	l.values, l.inputs, l.passes, l.classes = readRecording(t, "ctg-mcdropout", math.MaxInt)
	return l
}

// open opens sessions until each replica has the given number. Replicas tell their name in their
// answers.
func (l *load) open(replicas []string, each int) {
	l.t.Helper()
	missing := map[string]int{}
	for _, name := range replicas {
		missing[name] = each
	}
	eventually(l.t, "every replica has its sessions", func() bool {
		s, err := l.client.Session(l.t.Context(), l.config())
		if err != nil {
			l.t.Fatal(err)
		}
		before := maps.Clone(l.answers)
		l.do(s)
		for name, n := range l.answers {
			if n > before[name] && missing[name] > 0 {
				if missing[name]--; missing[name] == 0 {
					delete(missing, name)
				}
				l.sessions = append(l.sessions, s)
				return len(missing) == 0
			}
		}
		if err := s.Close(); err != nil {
			l.t.Error(err)
		}
		return false
	})
	l.t.Cleanup(func() {
		for _, s := range l.sessions {
			_ = s.Close() // whatever it lost is among the results
		}
	})
}

// onSession is the number of batches in flight on each session. One begins while the daemon still
// has the other.
const onSession = 2

// stream sends batches on every session for as long as more returns true. The returned function waits
// until all are answered.
func (l *load) stream(more func() bool) (wait func()) {
	return l.work(onSession*len(l.sessions), more, func(worker int) { l.do(l.sessions[worker%len(l.sessions)]) })
}

// work has a number of workers do something for as long as more returns true.
func (l *load) work(workers int, more func() bool, do func(worker int)) (wait func()) {
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			for l.t.Context().Err() == nil && more() {
				do(i)
			}
		})
	}
	l.t.Cleanup(group.Wait)
	return group.Wait
}

// callers is the number of calls in flight.
const callers = 3

// call sends batches in unary calls for as long as more returns true. The returned function waits
// until all are answered.
func (l *load) call(more func() bool) (wait func()) {
	return l.work(callers, more, func(int) { l.decompose() })
}

func (l *load) config() client.SessionConfig {
	return client.SessionConfig{Model: loadModel, Passes: l.passes, Detail: client.Full, Reconnect: patient}
}

// next returns the first number and the ids of a new batch.
func (l *load) next() (first int, ids []string) {
	first = int(l.begun.Add(loadBatch)) - loadBatch
	for n := range loadBatch {
		ids = append(ids, strconv.Itoa(first+n))
	}
	return first, ids
}

// input returns the passes of the input with this number.
func (l *load) input(number int) []float32 {
	size := l.passes * l.classes
	at := number % l.inputs * size
	return l.values[at : at+size]
}

// pass returns one pass of the batch that begins with first.
func (l *load) pass(first, pass int) (values []float32) {
	for n := range loadBatch {
		values = append(values, l.input(first + n)[pass*l.classes:(pass+1)*l.classes]...)
	}
	return values
}

func (l *load) do(s *client.Session) {
	first, ids := l.next()
	pass := 0
	results, err := s.DoRows(l.t.Context(), ids, func([]int) ([]float32, error) { // every pass is of all rows
		pass++
		return l.pass(first, pass-1), nil
	})
	l.keep(first, results, err, true)
}

func (l *load) decompose() {
	first, ids := l.next()
	b := client.Batch{
		Model: loadModel, Detail: client.Full, Passes: l.passes, Inputs: loadBatch, IDs: ids, Reconnect: patient,
	}
	for p := range l.passes {
		b.Values = append(b.Values, l.pass(first, p)...)
	}
	results, err := l.client.Decompose(l.t.Context(), b)
	l.keep(first, results, err, false)
}

// hold sends half the passes of a batch to one daemon, on a stream that does not reconnect. The
// returned function sends the rest.
func (l *load) hold(d *daemon) (rest func()) {
	l.t.Helper()
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	config := l.config()
	config.Reconnect = client.Reconnect{Disabled: true}
	first, ids := l.next()
	var g *client.Group
	eventually(l.t, "the daemon holds a batch", func() bool {
		s, err := c.Session(l.t.Context(), config)
		if err != nil {
			l.t.Fatal(err)
		}
		g, err = s.Open(l.t.Context(), ids)
		for p := 0; p < l.passes/2 && err == nil; p++ {
			err = g.Send(l.pass(first, p))
		}
		// The daemon reads a stream in order. Once it has refused this input, which is not finite,
		// the batch is open, unless the stream had grown too old.
		_, refused := s.DoRows(l.t.Context(), []string{"spoilt"}, func([]int) ([]float32, error) {
			return []float32{float32(math.NaN()), 0, 0}, nil
		})
		return err == nil && refused == nil && len(g.Rows()) > 0
	})
	return func() {
		for p := l.passes / 2; p < l.passes; p++ {
			if g.Send(l.pass(first, p)) != nil {
				break // the session has ended, and the results say so
			}
		}
		results, err := g.Wait(inTime(l.t))
		l.keep(first, results, err, true)
	}
}

// keep stores the results of a batch. If the batch failed as a whole, each of its inputs has that
// error.
func (l *load) keep(first int, results []client.Result, err error, streamed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range loadBatch {
		if err != nil {
			l.results[first+n] = append(l.results[first+n], client.Result{ID: strconv.Itoa(first + n), Err: err})
		}
	}
	for _, r := range results {
		number, err := strconv.Atoi(r.ID)
		if err != nil || number < first || number >= first+loadBatch {
			l.t.Errorf("a result for %q in the batch from %d", r.ID, first)
		}
		l.results[number] = append(l.results[number], r)
		if r.Err == nil {
			l.answers[r.Policy.GetVersion()]++
			if streamed {
				l.streamed[r.Policy.GetVersion()]++
			}
		}
	}
}

// answered returns the number of decisions that came back from a replica.
func (l *load) answered(replica string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[replica]
}

// onSessions returns the number of decisions that came back from a replica on sessions.
func (l *load) onSessions(replica string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streamed[replica]
}

// lines returns what a replica answered, as replay would print it. An empty name selects all
// replicas.
func (l *load) lines(replica string) (lines []replayLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, results := range l.results {
		for _, r := range results {
			if r.Err == nil && (replica == "" || r.Policy.GetVersion() == replica) {
				lines = append(lines, lineOf(r.Decomposition))
			}
		}
	}
	return lines
}

// lineOf returns the line that replay would print, as far as these tests read it.
func lineOf(d *ckdv1.Decomposition) replayLine {
	line := replayLine{C: d.GetC()}
	line.Decision.Action = strings.ToLower(strings.TrimPrefix(d.GetDecision().GetAction().String(), "ACTION_"))
	line.Decision.Score = strings.ToLower(strings.TrimPrefix(d.GetDecision().GetScore().String(), "SCORE_"))
	return line
}

// answeredOnce checks that every input has exactly one result, that so many results are errors, and
// that the decisions are those of decompose.
func (l *load) answeredOnce(policy string, errors int) {
	l.t.Helper()
	out := mustRun(l.t, "decompose", "--passes", recording("ctg-mcdropout", ".passes.npy"), "--policy", policy).Stdout
	offline := decodeLines[replayLine](l.t, out)
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := 0
	for number := range int(l.begun.Load()) {
		results := l.results[number]
		if len(results) != 1 {
			l.t.Errorf("input %d has %d results, expected one", number, len(results))
			continue
		}
		if results[0].Err != nil {
			failed++
			continue
		}
		got, want := lineOf(results[0].Decomposition), offline[number%l.inputs]
		if got.Decision.Action != want.Decision.Action || got.Decision.Score != want.Decision.Score || !cmp.Equal(got.C, want.C, approximately(1e-12)) {
			l.t.Errorf("input %d is answered %+v, expected %+v", number, got, want)
		}
	}
	if len(l.results) != int(l.begun.Load()) || failed != errors {
		l.t.Errorf("%d inputs have results, %d of them errors; expected %d, and %d", len(l.results), failed, l.begun.Load(), errors)
	}
}

// approximately compares numbers to a relative tolerance, or to 1e-15.
func approximately(relative float64) cmp.Option { return cmpopts.EquateApprox(relative, 1e-15) }
