// Package recordings holds real passes of models, and makes random ones for tests. The program
// contains the recording that the demo streams; the other files serve tests.
package recordings
