package store

import (
	"context"
	"path/filepath"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/watch"
)

// Watch reloads when the files change, until ctx ends; then it leaves nothing running. It begins with
// a reload, for what changed before. Changes are taken together: Watch waits until the files have been
// quiet for a moment, but not for long. A slow poll finds what the system does not report.
//
// Watch calls report with what is new: a changed set, a failure, the first success after one, or a new
// WatchErr. A failure that a poll finds again is not reported. The trigger is "watch".
func (s *Store) Watch(ctx context.Context, report func(Outcome)) { s.reloader.Watch(ctx, report) }

// placesOf returns the places that paths lead to now.
func placesOf(disk files.System, paths []string) *watch.Places {
	p := watch.NewPlaces(isPolicy)
	for _, path := range paths {
		p.Trace(path)
		if info, err := disk.Stat(path); err == nil && info.IsDir() {
			p.Trace(filepath.Join(path, dataLink))
		}
	}
	for _, s := range look(disk, paths) {
		p.Trace(s.path)
	}
	return p
}
