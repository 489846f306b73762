package ledger

import "github.com/ckd-project/ckd/internal/outcome/truth"

// Sampled tells tests which decisions are read twice.
var Sampled = sampled

// Reads returns how many records were read to count or replay them.
func (l *Ledger) Reads() int64 { return l.reads.Load() }

// NoSync returns options whose commits are not durable.
func NoSync(o Options) Options {
	o.noSync = true
	return o
}

// Walk calls each with all decisions.
func (l *Ledger) Walk(each func(*truth.Decision) error) error {
	return l.each(Filter{}, false, func(_ *walk, d *found) error { return each(&d.Decision) })
}
