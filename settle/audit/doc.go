// Package audit watches whether inputs that were settled early are decided as all
// their passes would have decided them, and says when to stop settling.
//
// A Sampler chooses, before an input's first pass, whether it is audited: run on to
// all its passes although the rule settles it earlier. The two decisions of an audited
// input are compared, which is a Verdict, and a Watch takes the verdicts of one policy.
// It acts on evidence of a breach, not on lack of proof: it settles until its evidence
// reaches the run length, then it is stopped for good, and a new policy gets a new
// Watch.
//
//	an input opens:       Sampler.Audits -> audited or not
//	an audit ends:        Watch.Add -> settle on, or stop
//	metrics:              Watch.Status, Interval
//
// Invariants:
//   - Whether an input is audited rests on its number and on verdicts before it opened,
//     never on its passes.
//   - As long as no audited input disagrees with a probability above the certified one,
//     given all audits before it, the audits until a stop are on average at least the run
//     length. Inputs need not be independent, nor alike; "before" is in the order of Add.
//   - Interval covers the mean of those probabilities at all times at once, with its
//     confidence, also while they change.
//   - Memory is constant, and nothing runs out of range, however long it runs.
//
// Nothing here is safe for concurrent use, but for Sampler, Interval and Verdict, which
// have no state.
package audit
