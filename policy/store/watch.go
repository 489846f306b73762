package store

import (
	"context"
	"os"
	"path/filepath"

	"github.com/ckd-project/ckd/internal/watch"
)

// Watch reloads when the files change, until ctx ends; then it leaves nothing
// running. Changes are taken together: it waits until all has been quiet for a
// moment, but not for long. A slow poll finds what the system does not tell of.
// It begins with a reload, for what changed before.
//
// Report is called, by Watch itself, with what is news: a changed set, a
// failure, the first success after one, and a new WatchErr. A failure that a
// poll finds again is not. The trigger is "watch".
func (s *Store) Watch(ctx context.Context, report func(Outcome)) { s.reloader.Watch(ctx, report) }

// placesOf paths as they lead now.
func placesOf(paths []string) *watch.Places {
	p := watch.NewPlaces(isPolicy)
	for _, path := range paths {
		p.Trace(path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			p.Trace(filepath.Join(path, dataLink))
		}
	}
	for _, s := range look(paths) {
		p.Trace(s.path)
	}
	return p
}
