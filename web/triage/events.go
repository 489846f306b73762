package triage

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	opening     = "retry: 3000\n\n"        // makes browsers reconnect after 3000 ms
	beat        = ": there is no news\n\n" // a comment, so that proxies keep the stream
	retryNoRoom = "10"                     // seconds until a refused watcher may try again
)

// watchers holds the event streams and their limits.
type watchers struct {
	patience  time.Duration // with a watcher that does not read
	heartbeat time.Duration // longest pause between what is sent to a watcher

	tokens  chan struct{} // one for each watcher
	came    chan struct{} // tells Run that a watcher came
	stopped chan struct{} // closed when Run ends
	once    sync.Once     // closes stopped
}

func newWatchers(limit int) watchers {
	return watchers{
		patience: 10 * time.Second, heartbeat: 5 * time.Second,
		tokens: make(chan struct{}, limit), came: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
}

// stop ends all event streams, and refuses further ones.
func (w *watchers) stop() { w.once.Do(func() { close(w.stopped) }) }

// enter takes a token, which leave returns. It returns why there is none, or "".
func (w *watchers) enter() (refused string) {
	select {
	case <-w.stopped:
		return "the daemon is stopping"
	default:
	}
	select {
	case w.tokens <- struct{}{}:
		return ""
	default:
		return "there are as many watchers as may be"
	}
}

func (w *watchers) leave() { <-w.tokens }

// wake tells Run that a watcher came.
func (w *watchers) wake() {
	select {
	case w.came <- struct{}{}:
	default: // Run is about to see it
	}
}

// serveEvents streams the state of a model, with every sample, until the watcher leaves or does not
// read, or Run ends.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	if why := p.watchers.enter(); why != "" {
		refuse(w, why)
		return
	}
	defer p.watchers.leave()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // so that no proxy waits for more
	if r.Method == http.MethodHead {
		return
	}
	out := &eventWriter{w: w, control: http.NewResponseController(w), patience: p.watchers.patience}
	defer func() { _ = out.limit() }() // limits what ends the answer
	// The server's read deadline is for the request, which is complete.
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	if out.write([]byte(opening)) != nil {
		return
	}
	p.watchers.wake()
	p.refresh()
	asked := r.URL.Query().Get("model")
	what := encodingOf{}
	timer := time.NewTimer(p.watchers.heartbeat)
	defer timer.Stop()
	for {
		if model := p.look(asked); model != what.model {
			what = encodingOf{model: model} // the watcher knows nothing of it yet
		}
		what.recent = p.maySeeRecent(r, what.model)
		state, number, next, err := p.encoded(what)
		if err != nil || out.event("state", state) != nil {
			return
		}
		what.since = number

		timer.Reset(p.watchers.heartbeat)
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return
			case <-p.watchers.stopped:
				return
			case <-next:
				waiting = false
			case <-timer.C:
				if out.write([]byte(beat)) != nil {
					return
				}
				timer.Reset(p.watchers.heartbeat)
			}
		}
	}
}

// refuse answers that there is no stream now.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryNoRoom)
	http.Error(w, why, http.StatusServiceUnavailable)
}

// eventWriter writes events. A write that takes longer than patience fails.
type eventWriter struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// event writes an event. data must have no line breaks.
func (e *eventWriter) event(name string, data []byte) error {
	return e.write([]byte("event: "+name+"\ndata: "), data, []byte("\n\n"))
}

func (e *eventWriter) write(text ...[]byte) error {
	if err := e.limit(); err != nil {
		return err
	}
	for _, part := range text {
		if _, err := e.w.Write(part); err != nil {
			return err
		}
	}
	if err := e.control.Flush(); err != nil {
		return err
	}
	// Without this, HTTP/2 would reset the stream after the deadline even while nothing is written.
	return e.deadline(time.Time{})
}

// limit sets the deadline of the next write.
func (e *eventWriter) limit() error { return e.deadline(time.Now().Add(e.patience)) }

func (e *eventWriter) deadline(at time.Time) error {
	if err := e.control.SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
