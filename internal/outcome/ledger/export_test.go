package ledger

// Sampled tells tests which decisions are read twice.
var Sampled = sampled

// Reads returns how many records were read to count or replay them.
func (l *Ledger) Reads() int64 { return l.reads.Load() }

// NoSync returns options whose commits are not durable.
func NoSync(o Options) Options {
	o.noSync = true
	return o
}
