package access

import (
	"context"
	"sync/atomic"
)

// Identity is one that may call. Its methods may be called on nil, which is where
// there is no access control: everything is allowed then.
type Identity struct {
	name                  string
	models                map[string]bool
	allModels             bool
	admin, reload, recent bool
	streams               int
	open                  *atomic.Int64 // streams, of all that bear the name
}

// nobody is who calls what is open to all. It may do nothing else.
var nobody = &Identity{open: new(atomic.Int64)}

// FromContext is who makes a call. It is nil if there is no access control, and an
// identity without a name, that may do nothing, for a call that needs none. A
// stream's may change from call to call, as the access file does.
func FromContext(ctx context.Context) *Identity {
	if s := sessionOf(ctx); s != nil {
		return s.identity.Load()
	}
	return nil
}

// Name is empty for nobody.
func (i *Identity) Name() string {
	if i == nil {
		return ""
	}
	return i.name
}

// MayUse reports whether the identity may use a model. See also Allow.
func (i *Identity) MayUse(model string) bool { return i == nil || i.allModels || i.models[model] }

// MayAdmin reports whether it may see the pages of the admin address that are open
// to all where there is no access control.
func (i *Identity) MayAdmin() bool { return i == nil || i.admin }

// MayReload reports whether it may have the policies loaded again.
func (i *Identity) MayReload() bool { return i == nil || i.reload }

// MaySeeRecent reports whether it may see recent inputs.
func (i *Identity) MaySeeRecent() bool { return i == nil || i.recent }

// AcquireStream counts a stream that opens. It is false, and nothing is counted,
// where the identity has as many as it may. Otherwise ReleaseStream must follow.
func (i *Identity) AcquireStream() bool {
	if i == nil {
		return true
	}
	if i.open.Add(1) > int64(i.streams) && i.streams > 0 {
		i.open.Add(-1)
		return false
	}
	return true
}

// ReleaseStream counts a stream that ends.
func (i *Identity) ReleaseStream() {
	if i != nil {
		i.open.Add(-1)
	}
}

// Streams is how many it may have open at one time; 0 is no limit of its own.
func (i *Identity) Streams() int {
	if i == nil {
		return 0
	}
	return i.streams
}
