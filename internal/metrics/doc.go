// Package metrics declares, creates and updates the Prometheus series of the daemon.
// docs/metrics.md is the reference for those who read them.
//
// The series are declared in groups that change together: what is counted of decided inputs
// (inputs, classes), traffic, drift, early stopping, policies, saturation, and events of the
// daemon.
//
// Invariants:
//   - A series exists from the start, at zero, where an alert or a share needs its rate from the first
//     event on: retained and deferred inputs, what classes share, what is lost or abandoned, faulty inputs, reviews, memory, panics.
//     These are few for a model. Every other series appears with its cause: another reason to
//     decide, a reason to refuse, a drift alarm, a window that is full.
//   - Labels come from policies and from lists fixed in the code, never from what a client sent; the
//     number of series is bounded whatever the number of classes. Fifty models of a hundred classes
//     have fewer than 15,000 samples, by a test.
//   - Counting an input allocates nothing, looks up no series and shares no memory with other
//     processors: inputs are counted in a few shards, which a scrape adds up. Memory does not grow
//     with streams. Drift is computed for blocks of eight inputs of a shard, under a lock.
//   - A scrape sees the series of a model before or after a change of its policy, never in between,
//     and an input whole or not at all.
//
// Inputs are counted in shards of our own since client_golang looks up a bucket and shares memory at
// each observation: 30% of the throughput of an idiomatic daemon at four classes, 43% at a thousand. The
// shards take 5.0 of the 38 us of a message of 64 inputs. client_golang encodes the sums, and has all that
// is not updated by each input. Histograms of its own that are updated in batches would replace them.
//
// Stability: metric names, labels and buckets are stable, as docs/metrics.md lists them; the Go API
// is for the daemon and may change with any version.
package metrics
