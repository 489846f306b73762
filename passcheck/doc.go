// Package passcheck tells passes from what only looks like passes.
//
// Package decomp says of one input whether its passes hardly differ (degenerate) and whether they lie
// where a softmax maps probabilities (squashed). A Run looks at the inputs of one caller in their order,
// and says from when on squashed inputs are taken for softmax twice.
//
// Stability: experimental. Exported names may change with any minor version.
package passcheck
