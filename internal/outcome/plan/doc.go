// Package plan says, before anything is audited, what audits will cost and what they will show: by
// simulation, from the inputs of a labelled recording and a policy.
//
// For each audit rate it gives the reviews that it causes, the interval of the risk after a month,
// how long it takes until the promise is said to hold, and how many inputs and audits it takes until
// the alarm is raised once the risk is two or three times its line. The inputs are drawn independently from the recording; a higher risk is made by
// drawing those critical inputs more often that the policy retains and calls safe.
//
// Invariants:
//   - The same inputs, policy and options give the same plan.
//   - The time is bounded, whatever the recording: a simulation that goes on too long says that it
//     takes longer than that.
//   - What cannot be known from the recording is nil, never 0.
//
// The simulation bets as a ledger does, by the same code, and counts outcomes as they are decided:
// in a ledger they count when their cohort is mature.
package plan
