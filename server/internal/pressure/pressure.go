package pressure

import "time"

// Level says what the daemon does about its memory.
type Level int

// The levels, in the order of pressure.
const (
	Calm   Level = iota // takes all work
	Refuse              // refuses new work
	End                 // also ends the connections that are charged most
)

// String returns the level as the log writes it.
func (l Level) String() string { return [...]string{"calm", "refuse", "end"}[l] }

// Shares of the available memory at which a level begins, and below which it ends.
const (
	refuseAt, refuseUntil = 0.80, 0.70
	endAt, endUntil       = 0.90, 0.85
)

// heldShare is the share of their budget, or of what the limit leaves if that is less, that clients
// must hold before the level leaves Calm.
const heldShare = 0.1

// collectEvery is the least time from one collection that a Manager asks for to the next.
const collectEvery = time.Second

// Reading is what was measured at one moment.
type Reading struct {
	At     time.Duration // since any fixed moment
	Heap   int64         // bytes of all objects, those included that no collection has freed yet
	Live   int64         // bytes that the last finished collection found alive
	Cycles uint64        // finished collections
	Held   int64         // bytes that clients are known to hold
	Idle   bool          // no call is in flight
}

// Verdict is what follows from a reading.
type Verdict struct {
	Level Level
	// Collect asks for a garbage collection and another reading right after it. The level stays as
	// it was until then.
	Collect bool
	// Excess is how many live bytes have to go before work is taken again. It is set with the level
	// End by a reading that measured it, and 0 otherwise.
	Excess int64
}

// Manager decides on the level, reading by reading. It is not safe for concurrent use.
type Manager struct {
	limit, budget int64
	baseline      int64
	level         Level
	pressure      float64 // as last measured

	cycles    uint64 // of the last reading
	begun     bool   // there was a reading
	collected time.Duration
	asked     bool
	idleSince uint64 // cycles when the daemon was first seen idle
	idle      bool
}

// New returns a Manager for a memory limit, a budget of what clients may hold and the live memory of
// the idle daemon, all in bytes and above 0.
func New(limit, budget, baseline int64) *Manager {
	return &Manager{limit: limit, budget: budget, baseline: baseline}
}

// Pressure returns the last measured pressure, from 0. It is above 1 if more lives than the limit
// allows.
func (m *Manager) Pressure() float64 { return m.pressure }

// Baseline returns the live memory of the idle daemon.
func (m *Manager) Baseline() int64 { return m.baseline }

// Next decides by the next reading.
func (m *Manager) Next(r Reading) Verdict {
	measured := m.begun && r.Cycles != m.cycles
	m.begun, m.cycles = true, r.Cycles
	m.learnBaseline(r)
	if measured {
		m.pressure = m.share(r.Live)
	}
	atMost := max(m.share(r.Heap), 0) // live memory is part of the heap
	if atMost < m.pressure {
		m.pressure = atMost
	}
	switch {
	case float64(r.Held) < heldShare*float64(min(m.budget, m.available())), atMost < refuseUntil:
		m.level = Calm
		return Verdict{Level: Calm}
	case measured:
		m.level = m.next()
		v := Verdict{Level: m.level}
		if m.level == End {
			v.Excess = r.Live - m.baseline - int64(refuseUntil*float64(m.available()))
		}
		return v
	}
	v := Verdict{Level: m.level}
	if worth := m.level != Calm || atMost >= refuseAt; worth && (!m.asked || r.At-m.collected >= collectEvery) {
		m.asked, m.collected, v.Collect = true, r.At, true
	}
	return v
}

// next returns the level at the measured pressure.
func (m *Manager) next() Level {
	p := m.pressure
	switch {
	case p >= endAt, m.level == End && p >= endUntil:
		return End
	case p >= refuseAt, m.level != Calm && p >= refuseUntil:
		return Refuse
	}
	return Calm
}

// learnBaseline measures the baseline again when the daemon has been idle for a whole collection:
// other policies take other memory.
func (m *Manager) learnBaseline(r Reading) {
	if !r.Idle {
		m.idle = false
		return
	}
	if !m.idle {
		m.idle, m.idleSince = true, r.Cycles
	}
	if r.Cycles >= m.idleSince+2 { // the first of the two may have begun before
		m.baseline = r.Live
	}
}

// available returns the bytes that the limit leaves above the baseline, at least 1.
func (m *Manager) available() int64 { return max(m.limit-m.baseline, 1) }

// share returns bytes above the baseline as a share of what is available.
func (m *Manager) share(bytes int64) float64 {
	return max(float64(bytes-m.baseline)/float64(m.available()), 0)
}
