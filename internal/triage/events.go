package triage

import (
	"errors"
	"net/http"
	"time"
)

const (
	opening     = "retry: 3000\n\n"        // ms until a browser that lost the stream asks again
	beat        = ": there is no news\n\n" // a comment, for those in between that would give up
	retryNoRoom = "10"                     // s, for who is one too many
)

// serveEvents streams the state of a model, anew with every sample, until the
// watcher goes away, or does not read, or Run ends.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case <-p.ended:
		refuse(w, "the daemon is stopping")
		return
	default:
	}
	select {
	case p.watchers <- struct{}{}:
		defer func() { <-p.watchers }()
	default:
		refuse(w, "there are as many watchers as may be")
		return
	}

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy would wait for more
	if r.Method == http.MethodHead {
		return
	}
	out := &eventWriter{w: w, control: http.NewResponseController(w), patience: p.patience}
	defer func() { _ = out.limit() }() // of what ends the answer
	// The server's deadline is for the request, which was read.
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	if out.write([]byte(opening)) != nil {
		return
	}
	select {
	case p.woken <- struct{}{}:
	default: // Run is about to see it
	}

	p.refresh()
	asked := r.URL.Query().Get("model")
	what := encodingOf{}
	timer := time.NewTimer(p.heartbeat)
	defer timer.Stop()
	for {
		if model := p.look(asked); model != what.model {
			what = encodingOf{model: model} // of which nothing is known yet
		}
		what.recent = p.maySeeRecent(r, what.model)
		state, sampled, news, err := p.encoded(what)
		if err != nil || out.event("state", state) != nil {
			return
		}
		what.since = sampled

		timer.Reset(p.heartbeat)
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return
			case <-p.ended:
				return
			case <-news:
				waiting = false
			case <-timer.C:
				if out.write([]byte(beat)) != nil {
					return
				}
				timer.Reset(p.heartbeat)
			}
		}
	}
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryNoRoom)
	http.Error(w, why, http.StatusServiceUnavailable)
}

// eventWriter writes events, each of which may take as long as there is patience.
type eventWriter struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// event writes an event of data without line breaks.
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
	// HTTP/2 resets a stream whose deadline has passed, even while nothing is written.
	return e.deadline(time.Time{})
}

// limit is how long what is written next may take.
func (e *eventWriter) limit() error { return e.deadline(time.Now().Add(e.patience)) }

func (e *eventWriter) deadline(at time.Time) error {
	if err := e.control.SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
