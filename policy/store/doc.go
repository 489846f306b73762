// Package store brings policy files from disk: it finds them, reads them, and
// hands them all to policy.Parse at once, so that a set of files is loaded
// whole or not at all.
//
// It follows symbolic links and skips names that begin with a dot, which makes
// a mounted Kubernetes ConfigMap an ordinary directory of policies. Two loads
// of files that mean the same give sets of equal hashes.
package store
