// Package metrics declares, pre-creates and updates the Prometheus series of
// the daemon. docs/metrics.md is the reference for those who read them.
//
// Invariants:
//   - Every series that a policy can lead to exists, at zero, from the moment
//     that the policy is in force, so that rates and shares are never missing.
//   - Labels come from policies and from lists that are fixed at start, never
//     from what a client sent; the number of series is bounded whatever the
//     number of classes.
//   - Counting an input allocates nothing, looks no series up and shares no memory
//     with other processors: the series that inputs update are counted in a few
//     shards, which a scrape adds up. Their memory does not grow with streams. Drift
//     is looked for by blocks of eight inputs of a shard, for which it takes a lock.
//   - A scrape sees the series of a model before or after a change of its
//     policy, never in between, and an input whole or not at all.
package metrics
