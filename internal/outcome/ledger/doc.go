// Package ledger keeps the outcomes of a fleet's decisions and says whether policies keep their
// promise.
//
// An outcome is a receipt with the true class, who says so and when. Report stores outcomes durably
// before it answers. Figures are computed per promise: a policy hash and a model version. They
// depend on which outcomes are stored, never on the order in which these arrived:
//
//   - Readings of one decision form a set. Of the readings of one source the one with the latest time
//     of reading stands.
//   - Of decisions with the same draw the earliest counts.
//   - Outcomes are tallied by cohort, the decisions of one period, in the order of decision time and
//     unique number. Sums run over cohorts in their order.
//
// Evidence for the alarm takes a cohort once, when all its outcomes are due, with what had been
// reported by then. Later outcomes and corrections change estimates, intervals and a replayed
// evidence that is shown beside it. They never clear an alarm: only a named person does, with a
// reason, or another policy.
//
// The store is two bbolt files. Report appends each batch to inbox.db in one commit. A merge sorts
// what has gathered there into ledger.db. A crash between both repeats the merge, which changes
// nothing: readings are sets.
package ledger
