// Package metrics declares, pre-creates and updates the Prometheus series of
// the daemon. docs/metrics.md is the reference for those who read them.
//
// Invariants:
//   - Every series that a policy can lead to exists, at zero, from the moment
//     that the policy is in force, so that rates and shares are never missing.
//   - Labels come from policies and from lists that are fixed at start, never
//     from what a client sent; the number of series is bounded whatever the
//     number of classes.
//   - Counting an input allocates nothing and looks no series up.
//   - A scrape sees the series of a model before or after a change of its
//     policy, never in between.
package metrics
