// Package year lets a site of ckd live through a year in minutes: a ledger and its replicas, each a process
// of the real binary with a clock that the test sets. At every step all that the site says about its
// promises is compared with an account of what happened, which knows nothing of the ledger's code.
package year
