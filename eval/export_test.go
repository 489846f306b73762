package eval

// These are tested from outside, beside reports.
var (
	FallsBack = fallsBack
	Gated     = gated
	ByPolicy  = byPolicy
)
