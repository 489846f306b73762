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
	streams, calls        int
	watches               int // -1: as many as streams
	*use
}

// use is what all that bear a name have, whatever file they were read from.
type use struct{ streams, calls, watches atomic.Int64 }

// nobody is who calls what is open to all. It may do nothing else.
var nobody = &Identity{use: new(use)}

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

// MaySeeRecent reports whether it may see single inputs, with the ids that clients
// gave them.
func (i *Identity) MaySeeRecent() bool { return i == nil || i.recent }

// AcquireStream counts a stream that opens. It is false, and nothing is counted,
// where the identity has as many as it may. Otherwise ReleaseStream must follow.
func (i *Identity) AcquireStream() bool { return i == nil || acquire(&i.use.streams, i.streams) }

// ReleaseStream counts a stream that ends.
func (i *Identity) ReleaseStream() {
	if i != nil {
		i.use.streams.Add(-1)
	}
}

// AcquireCall and ReleaseCall are the same for unary calls.
func (i *Identity) AcquireCall() bool { return i == nil || acquire(&i.use.calls, i.calls) }

// ReleaseCall counts a call that ends.
func (i *Identity) ReleaseCall() {
	if i != nil {
		i.use.calls.Add(-1)
	}
}

// AcquireWatch and ReleaseWatch are the same for watches of the health.
func (i *Identity) AcquireWatch() bool { return i == nil || acquire(&i.use.watches, i.Watches()) }

// ReleaseWatch counts a watch that ends.
func (i *Identity) ReleaseWatch() {
	if i != nil {
		i.use.watches.Add(-1)
	}
}

func acquire(n *atomic.Int64, most int) bool {
	if n.Add(1) > int64(most) && most > 0 {
		n.Add(-1)
		return false
	}
	return true
}

// Streams is how many it may have open at one time; 0 is no limit of its own.
func (i *Identity) Streams() int {
	if i == nil {
		return 0
	}
	return i.streams
}

// Calls is how many it may have under way at one time; 0 is no limit of its own.
func (i *Identity) Calls() int {
	if i == nil {
		return 0
	}
	return i.calls
}

// Watches is how many watches of the health it may have open at one time; 0 is no
// limit of its own.
func (i *Identity) Watches() int {
	if i == nil {
		return 0
	}
	if i.watches < 0 {
		return i.streams
	}
	return i.watches
}

// UsesModels reports whether there is any model that it may use.
func (i *Identity) UsesModels() bool { return i == nil || i.allModels || len(i.models) > 0 }
