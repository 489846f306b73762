// Package store keeps a ledger in one SQLite file: what is stored, never what it means.
//
// # Invariants
//
//   - An Update is one transaction, on the disk when it returns. Each that wrote has a number, the
//     commit, which is stored with it. A process that asks for what changed since a commit misses
//     nothing that another process stored.
//   - A file that is missing, empty, cut or of another program is refused with what to do. Only
//     Create makes one.
//   - Every row ends with a checksum over its table, its key and its columns. Each read compares
//     it, and Verify reads all. The sealed receipt of a decision is kept beside the opened one: it
//     says whether that is genuine for as long as its key is at hand, and is needed for nothing
//     else.
//   - The sums of a cohort change in the transaction that stores what a process told, by the
//     difference.
//   - Freed bytes are overwritten. After Delete and Purge nothing of a decision is in the file or
//     its log.
//
// # Tables
//
// A promise is a policy with a version of the model, and a cohort one period of it. The decisions of a
// cohort lie together, in the order of their arrival, each in one row with its readings: a cohort is
// read in one pass, which Scan sorts by time, and what arrives changes the end of each cohort. One
// index knows draws and receipts: storing a decision says whether one of its input was there. Groups
// have another.
//
// A cohort has three rows, since they change at different times: how often its decisions changed,
// what was counted of them, and what evidence took. What was told of issued receipts stands by
// hour, stratum and process; beside it stand the sums of each cohort and the settings that it
// names. The last commit that changed a cohort, a sum or a sealer stands in its row, under an
// index.
//
// Evidence has an epoch: who puts it names the epoch that it read, and of two processes one is told
// that the other was first. The trail only grows. The identity of the ledger has one row.
//
// # The log
//
// SQLite appends commits to a log beside the file, and moves them into the file at times. A View
// keeps the log from beginning anew. Once the log has 64 MB, an Update holds new Views back until
// those that last have ended, at most for a second, and then cuts the log. A View beside which the
// log grows by 128 MB fails with ErrLong.
package store
