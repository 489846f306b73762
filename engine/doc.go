// Package engine leads inputs through their lives: it opens them, takes their passes, stops them
// early where a rule allows it, decides on them by the policy, and checks by all passes what was
// stopped. The same code runs behind the network and over recordings.
//
//	passes that come in:  Model.Prepare -> Opening.Open -> Group.Feed -> Answers
//	complete passes:      Model.NewBatch -> Batch.Reset -> Batch.Outcome
//	pass by pass:         NewFollower -> Follower.Add -> Follower.Statistics
//
// The first two decide by the same method, Batch.Outcome, which Group.Feed calls once an input has
// its last pass or the rule stops it. Complete passes need no Group, because none of their inputs
// stays open, and a Group would copy them.
//
// # Invariants
//
//   - A group keeps the model, and so the policy, that it was opened under.
//   - An error is never a decision: an input has an Outcome only if every row was accepted and
//     there were enough passes.
//   - Every input of a group ends once: Answers.Close receives it, or Group.Abandon gives it up.
//   - The engine reads no clock, starts no goroutine and draws no random number: a seeded
//     fullpass.Sampler and the same calls give the same answers.
//   - A Model and an EarlyStopper may be shared. A Group, a Batch, a Follower and an Outcome are
//     for one goroutine at a time.
//
// # Stability
//
// The package is public so that recordings can be decided elsewhere. Its API may still change
// between minor versions.
package engine
