// Package passcheck tells passes from what only looks like passes.
//
// Package decomp says of one input whether its passes hardly differ (degenerate) and whether they lie
// where a softmax maps probabilities (squashed). A Run looks at the inputs of one caller in their order,
// and says from when on squashed inputs are taken for softmax twice.
//
// Of a whole recording Passes looks for the Signs that only many inputs show: passes that repeat, that
// are unlike the others or the same for all inputs, and inputs that are copies. Labels compares the
// passes with the true classes. Neither has an opinion where inputs are too few to tell.
//
// Stability: experimental. Exported names may change with any minor version.
package passcheck
