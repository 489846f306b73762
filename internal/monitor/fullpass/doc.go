// Package fullpass watches whether inputs that are stopped early are decided as all their passes
// would decide them, and says when early stopping must end.
//
// A Sampler chooses, before an input's first pass, whether the input gets a full-pass check:
// whether it runs on to its last pass although the rule stops it earlier. The Verdict of a check
// compares the two decisions. A Watch collects the verdicts of one policy. It acts on evidence of a
// breach, not on a lack of proof: early stopping goes on until the evidence reaches the run length.
// Then the Watch is stopped for good; a new policy gets a new Watch.
//
//	an input opens:       Sampler.Checks -> checked or not
//	a check ends:         Watch.Add -> go on, or stop
//	metrics:              Watch.Status, Interval
//
// Invariants:
//   - Whether an input is checked depends on its number and on verdicts before it opened, never on
//     its passes.
//   - If no checked input disagrees with a probability above the certified one, given all checks
//     before it, there are on average at least as many checks until a stop as the run length.
//     Inputs need be neither independent nor alike; "before" is in the order of Add.
//   - Interval covers the mean of those probabilities at all times at once, with its confidence,
//     even while they change.
//   - Memory is constant, and no number runs out of range, however long it runs.
//
// Sampler, Interval and Verdict have no state and may be shared. A Watch is for one goroutine at a
// time.
package fullpass
