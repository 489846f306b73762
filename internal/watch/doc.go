// Package watch reads files again when they may have changed.
//
// It knows nothing of what is in them. Its Places say where a change may matter:
// every link on the way to a file, so that the swap of a mounted ConfigMap's or
// Secret's ..data link is seen as well as a file written over. Its Reloader calls
// back when all has been quiet for a moment, one reload after another, and tells
// what is news. A slow poll finds what the system does not tell of.
package watch
