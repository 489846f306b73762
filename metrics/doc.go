// Package metrics declares, creates and updates the Prometheus series of the daemon.
// docs/metrics.md is the reference for those who read them.
//
// The series are declared in groups that change together: what is counted of decided inputs
// (inputs, classes), traffic, drift, early stopping, policies, saturation, and events of the
// daemon.
//
// Invariants:
//   - Every series that a policy can lead to exists, at zero, from the moment that the policy is in
//     force, so that rates and shares are never missing.
//   - Labels come from policies and from lists fixed at start, never from what a client sent; the
//     number of series is bounded whatever the number of classes.
//   - Counting an input allocates nothing, looks up no series and shares no memory with other
//     processors: inputs are counted in a few shards, which a scrape adds up. Memory does not grow
//     with streams. Drift is computed for blocks of eight inputs of a shard, under a lock.
//   - A scrape sees the series of a model before or after a change of its policy, never in between,
//     and an input whole or not at all.
//
// Stability: metric names, labels and buckets are stable, as docs/metrics.md lists them; the Go API
// is for the daemon and may change with any version.
package metrics
