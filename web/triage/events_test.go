package triage

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/pagestate"
)

// stream is the event stream of one watcher.
type stream struct {
	answer *http.Response
	lines  *bufio.Reader
	other  []string // lines outside events
}

// watch opens a stream, or is refused.
func watch(t testing.TB, client *http.Client, url string) *stream {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return &stream{answer: answer, lines: bufio.NewReader(answer.Body)}
}

// next returns the next event. The error is io.EOF if the stream ends before it.
func (s *stream) next(t testing.TB) (*pagestate.State, error) {
	t.Helper()
	var name string
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "event":
			name = value
		case "data":
			if name != "state" {
				t.Fatalf("event %q, expected state", name)
			}
			return decode(t, strings.NewReader(value)), nil
		default:
			s.other = append(s.other, line)
		}
	}
}

func (s *stream) must(t testing.TB) *pagestate.State {
	t.Helper()
	state, err := s.next(t)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestEvents checks that the first event has the whole history, that later ones have what is new,
// and that together they give the state.
func TestEvents(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("a", 3, 1), manyClasses("m", 3, 1))
	inputs := randomInputs(1, 10, 5, 3)
	next := func(model string, after time.Duration) {
		d.feed(t, model, inputs)
		d.step(after)
	}
	d.page.sample()
	for range 5 {
		next("m", stepTime)
	}
	s := watch(t, http.DefaultClient, d.serve(t).URL+"/triage/events?model=m")
	if s.answer.StatusCode != http.StatusOK || s.answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %v", s.answer.Status, s.answer.Header)
	}
	first := s.must(t)
	if first.Model.Name != "m" || len(first.Model.History) != 5 {
		t.Fatalf("first event: %+v", first.Model)
	}
	if s.other[0] != "retry: 3000" {
		t.Errorf("%q, expected to be told when to try again", s.other)
	}
	history := make(map[int64]pagestate.Step)
	for _, step := range first.Model.History {
		history[step.At] = step
	}
	for i, want := range []struct {
		after time.Duration
		steps int
	}{{2 * time.Second, 1}, {2 * time.Second, 1}, {stepTime, 1}, {3 * time.Second, 1}, {0, 1}, {stepTime, 1}} {
		next("m", want.after)
		event := s.must(t)
		if len(event.Model.History) != want.steps {
			t.Fatalf("event %d: %d steps, expected %d", i, len(event.Model.History), want.steps)
		}
		for _, step := range event.Model.History {
			history[step.At] = step
		}
		whole := d.state(t, "m")
		if diff := cmp.Diff(whole.Model.Spans, event.Model.Spans); diff != "" || !event.At.Equal(whole.At) {
			t.Errorf("event %d at %v, the state at %v; spans (-state +event):\n%s", i, event.At, whole.At, diff)
		}
		if len(whole.Model.History) != len(history) {
			t.Fatalf("event %d: %d steps, expected %d", i, len(history), len(whole.Model.History))
		}
		for _, step := range whole.Model.History {
			if diff := cmp.Diff(step, history[step.At]); diff != "" {
				t.Errorf("event %d: step (-state +events):\n%s", i, diff)
			}
		}
	}
	// A slow watcher gets all that is new since its last event.
	next("m", stepTime)
	last := s.must(t)
	d.page.mu.Lock()
	since := d.page.latest.number
	d.page.mu.Unlock()
	for range 3 {
		next("m", stepTime)
	}
	text, _, _, err := d.page.encoded(encodingOf{model: "m", since: since})
	if err != nil {
		t.Fatal(err)
	}
	if late := decode(t, strings.NewReader(string(text))); len(late.Model.History) != 3 || late.At.Equal(last.At) {
		t.Errorf("%d steps since, expected 3", len(late.Model.History))
	}
}

// TestEventsOfNoModel checks that the stream of a model that is not in force goes on, and shows the
// model when it comes. A stream without a name shows the first model, and its whole history if that
// changes.
func TestEventsOfNoModel(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	url := d.serve(t).URL + "/triage/events"
	d.page.sample()
	d.step(stepTime)
	unknown, first := watch(t, http.DefaultClient, url+"?model=b"), watch(t, http.DefaultClient, url)
	if s := unknown.must(t); s.Model != nil || len(s.Models) != 1 {
		t.Fatalf("%+v", s)
	}
	if s := first.must(t); s.Model.Name != "m" || len(s.Model.History) != 1 {
		t.Fatalf("%+v", s.Model)
	}
	d.put(t, manyClasses("m", 3, 1), manyClasses("b", 3, 1))
	d.step(stepTime)
	if s := unknown.must(t); s.Model == nil || s.Model.Name != "b" {
		t.Errorf("%+v", s.Model)
	}
	if s := first.must(t); s.Model == nil || s.Model.Name != "b" {
		t.Errorf("%+v", s.Model)
	}
	d.clock.advance(stepTime)
	d.put(t, manyClasses("m", 3, 1))
	d.page.sample()
	if s := first.must(t); s.Model == nil || s.Model.Name != "m" || len(s.Model.History) != 3 {
		t.Errorf("%+v, expected m as a whole", s.Model)
	}
}

// TestTooManyWatchers checks that one watcher too many is refused until another leaves.
func TestTooManyWatchers(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	d.page.watchers = newWatchers(2)
	url := d.serve(t).URL + "/triage/events"
	d.page.sample()
	streams := []*stream{watch(t, http.DefaultClient, url), watch(t, http.DefaultClient, url)}
	for _, s := range streams {
		s.must(t)
	}
	refused := watch(t, http.DefaultClient, url).answer
	if refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
		t.Fatalf("%s, %v, expected 503 and when to try again", refused.Status, refused.Header)
	}
	streams[0].answer.Body.Close()
	for deadline := time.Now().Add(time.Minute); len(d.page.watchers.tokens) == 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // the server sees only then that the watcher left
			t.Fatal("who went away is still there")
		}
	}
	watch(t, http.DefaultClient, url).must(t)
	d.step(stepTime)
	streams[1].must(t)
}

// TestEndOfRun checks that the end of Run ends the streams, so that the server's shutdown need not
// wait.
func TestEndOfRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	server := d.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.page.Run(ctx) })
	s := watch(t, http.DefaultClient, server.URL+"/triage/events")
	s.must(t)
	cancel()
	running.Wait()
	for {
		if _, err := s.next(t); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("%v, expected the end of the stream", err)
			}
			break
		}
	}
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if w := d.get(t, "/triage/events"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d after the end, expected 503", w.Code)
	}
}

// recorder records an answer with its deadlines.
type recorder struct {
	*httptest.ResponseRecorder
	now   func() time.Time
	read  []time.Time
	write []time.Duration // write deadlines from now; 0 means lifted
}

func (r *recorder) SetReadDeadline(at time.Time) error {
	r.read = append(r.read, at)
	return nil
}

func (r *recorder) SetWriteDeadline(at time.Time) error {
	left := time.Duration(0)
	if !at.IsZero() {
		left = at.Sub(r.now())
	}
	r.write = append(r.write, left)
	return nil
}

// TestDeadlines checks that the server's deadlines, which are for short answers, do not end a
// stream: the read deadline is lifted, and so is the write deadline while nothing is written.
// Comments keep a stream without news alive.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
		ctx, cancel := context.WithCancel(t.Context())
		w := &recorder{ResponseRecorder: httptest.NewRecorder(), now: time.Now}
		var serving sync.WaitGroup
		serving.Go(func() {
			d.page.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/triage/events", nil))
		})
		time.Sleep(61 * time.Second) // by the fake clock, without Run
		synctest.Wait()
		d.page.sample()
		synctest.Wait()
		cancel()
		serving.Wait()
		if len(w.read) != 1 || !w.read[0].IsZero() {
			t.Errorf("read deadlines %v, expected none", w.read)
		}
		body := w.Body.String()
		if n := strings.Count(body, "event: state\n"); n != 2 {
			t.Errorf("%d events, expected 2", n)
		}
		if n := strings.Count(body, beat); n != 12 || d.page.watchers.heartbeat >= d.page.watchers.patience {
			t.Errorf("%d comments in a minute without news, expected 12", n)
		}
		var want []time.Duration
		for range 1 + 2 + 12 {
			want = append(want, d.page.watchers.patience, 0)
		}
		if want = append(want, d.page.watchers.patience); !slices.Equal(w.write, want) {
			t.Errorf("write deadlines %v, expected %v", w.write, want)
		}
		if len(d.page.watchers.tokens) != 0 {
			t.Error("the watcher is still there")
		}
	})
}

// TestWhoMaySeeRecent checks that permission is asked for every event, because it may be withdrawn.
func TestWhoMaySeeRecent(t *testing.T) {
	t.Parallel()
	var may atomic.Bool
	may.Store(true)
	type who struct{}
	d := newDaemon(t, Options{
		Inputs:       NewInputs(2),
		MaySeeRecent: func(ctx context.Context, model string) bool { return may.Load() && ctx.Value(who{}) == model },
	}, 0, manyClasses("m", 3, 1, allDeferred), manyClasses("n", 3, 1, allDeferred))
	known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("known") {
			r = r.WithContext(context.WithValue(r.Context(), who{}, "m"))
		}
		d.page.Handler().ServeHTTP(w, r)
	})
	server := httptest.NewServer(known)
	t.Cleanup(server.Close)
	d.page.sample()
	d.feed(t, "m", randomInputs(1, 5, 5, 3))
	d.step(stepTime)
	allowed := watch(t, http.DefaultClient, server.URL+"/triage/events?known")
	other := watch(t, http.DefaultClient, server.URL+"/triage/events")
	if m := allowed.must(t).Model; m.Recent == nil || len(m.Recent.Inputs) != 2 || m.RecentWhy != "" {
		t.Errorf("%+v, %q", m.Recent, m.RecentWhy)
	}
	if m := other.must(t).Model; m.Recent != nil || m.RecentWhy != "not allowed" {
		t.Errorf("%+v, %q", m.Recent, m.RecentWhy)
	}
	if m := watch(t, http.DefaultClient, server.URL+"/triage/events?known&model=n").must(t).Model; m.Recent != nil || m.RecentWhy != "not allowed" {
		t.Errorf("of another model: %+v, %q", m.Recent, m.RecentWhy)
	}
	may.Store(false)
	d.step(stepTime)
	if m := allowed.must(t).Model; m.Recent != nil || m.RecentWhy != "not allowed" {
		t.Errorf("%+v, %q", m.Recent, m.RecentWhy)
	}

	off := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	if m := off.state(t, "").Model; m.Recent != nil || m.RecentWhy != "off" {
		t.Errorf("%+v, %q", m.Recent, m.RecentWhy)
	}
}

// TestConcurrently runs watchers, requests, inputs and reloads at once.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	deciding := manyClasses("m", 3, 1, "primary: {score: c_crit_max, threshold: 0}", "fallback: {score: cbec, threshold: 0}")
	d := newDaemon(t, Options{Inputs: NewInputs(3)}, 0, deciding)
	d.page.now = time.Now
	server := d.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all, askers sync.WaitGroup
	all.Go(func() { d.page.Run(ctx) })
	m := d.models["m"]
	inputs := randomInputs(1, 20, 5, 3)
	all.Go(func() {
		for ctx.Err() == nil {
			m.each(t, inputs, func(o *engine.Outcome) { d.count(m, "id", o) })
		}
	})
	for range 4 {
		askers.Go(func() {
			for range 5 {
				s := watch(t, http.DefaultClient, server.URL+"/triage/events")
				s.must(t)
				d.page.sample()
				s.must(t)
				s.answer.Body.Close()
				d.state(t, "m")
			}
		})
	}
	for range 10 {
		d.put(t, deciding)
		d.page.sample()
	}
	askers.Wait()
	cancel()
	all.Wait()
}
