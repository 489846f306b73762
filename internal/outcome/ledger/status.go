package ledger

import "github.com/ckd-project/ckd/internal/outcome/store"

// Status returns the size of the store, its room, and how its writes and backups went.
func (l *Ledger) Status() store.Status { return l.store.Status() }
