// Package sharded counts into Prometheus counters and histograms without looking series up,
// without allocating, and without sharing memory between processors.
//
// A series is split into parts, one for each Shard. Whoever holds the lock of a shard counts into
// its parts. A scrape locks one shard after the other and adds the parts up, so that it sees what
// was counted under one lock whole or not at all.
//
// Histograms have classic and native buckets at once. Their Layout is fixed, so that a value finds
// its bucket by a table instead of a search.
package sharded
