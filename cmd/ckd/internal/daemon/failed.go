package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ckd-project/ckd/internal/httperror"
)

// failedReloads holds why files are not reloaded, by kind of file, for /healthz.
type failedReloads struct {
	mu   sync.Mutex
	text map[string]string
}

// set replaces the text on some files. An empty text says that their last reload succeeded.
func (f *failedReloads) set(what, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == nil {
		f.text = map[string]string{}
	}
	f.text[what] = text
}

// lines returns the texts, in a fixed order.
func (f *failedReloads) lines() (lines string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(f.text)) {
		if text := f.text[what]; text != "" {
			lines += strings.TrimSuffix(text, "\n") + "\n"
		}
	}
	return lines
}

// firstLines shortens a list of faults: the log has all of them, but this text is sent to every
// watcher of the triage page with every event.
func firstLines(text string) string {
	const mostLines, mostBytes = 20, 4096
	lines := strings.SplitAfter(text, "\n")
	kept, size := 0, 0
	for kept < len(lines) && kept < mostLines && size+len(lines[kept]) <= mostBytes {
		size += len(lines[kept])
		kept++
	}
	switch left := len(lines) - kept; {
	case left == 0:
		return text
	case kept == 0:
		return httperror.Clip(lines[0]) + " (the log has all of it)"
	default:
		return text[:size] + fmt.Sprintf("and %d more: the log has them", left)
	}
}
