// Package watch reads files again when they have changed.
//
// The package does not interpret the files. Reloader looks at them twice a second: whether each is
// the same file as before, of the same size and age, by whatever links lead to it. So it sees the
// swap of a mounted ConfigMap's or Secret's ..data link as well as a file written over, on every file
// system. It reads files that have come to rest, one reload after another, and reports only news.
package watch
