// Package watch reads files again when they may have changed.
//
// The package does not interpret the files. Places names where a change may matter: every link
// on the way to a file, so that it sees the swap of a mounted ConfigMap's or Secret's ..data link
// as well as a file written over. Reloader calls back when the files have been quiet for a moment,
// one reload after another, and reports only news. A slow poll finds changes that the
// system does not report.
package watch
