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
// The interval of k disagreements in n checks is where both of
//
//	W+(m) = mean over s of exp( s k - n log(1 + m (exp( s) - 1)))
//	W-(m) = mean over s of exp(-s k - n log(1 + m (exp(-s) - 1))),   s = 1/64, 1/32, ... 8
//
// are below 2/(1 - confidence): the betting interval with hedged capital of Waudby-Smith and Ramdas
// (2024) with a mixture of constant bets. The evidence is an e-detector: see detector.
//
// In simulations with 1% certified, a rise from 0.5% to 2% takes 1,250 checks (21,500 inputs) until
// the stop, to 5% 180 checks (3,800 inputs), to 10% 62 (1,400); one in ten takes almost twice as long.
// With the share exactly as certified a false stop takes 69,000 checks on average, of 50,000 that are
// proven; at 80% of it 540,000.
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
