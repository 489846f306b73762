// Package demo shows the daemon at work on real passes. Its policy was tuned on one half of a recording.
// It starts the daemon, streams the other half through its sockets as a model server would, and reports
// what came back. Simulated readers answer what is to be reviewed, so that the daemon's ledger tells how
// often the policy is wrong.
package demo
