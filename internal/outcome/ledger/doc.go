// Package ledger keeps the outcomes of a fleet's decisions and says whether policies keep their
// promise.
//
// An outcome is a receipt with the true class, who says so and when. Report stores outcomes durably
// before it answers. It joins three rooms: truth says what the readings of a decision add up to, promise
// what the decisions say about the risk, and store keeps all of it in one file. In memory is only what is
// read from the store or follows from it, so that several processes may serve one ledger: what another
// has changed is read before states are computed, and of two that take a cohort into the evidence one
// succeeds.
//
// Figures depend on which outcomes are stored, never on the order in which these arrived.
package ledger
