// Package recordings holds real passes: those that the demo streams are part
// of the program, the others serve tests.
package recordings
