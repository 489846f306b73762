// Package decisionlog keeps a record of every decision in a file of JSON lines. It may lose records, which it
// counts, and it never makes a decision wait.
//
//	a daemon:  Open -> Log.SetPolicies, Log.Add, Log.LeaveOut, Log.Reopen, Log.Close
//	a reader:  Each -> Line; Verify -> Report
//
// Every decision of a process has a number, from 1 on, whether or not it is kept. The file has three kinds of
// lines. A record is a decision: see Record. A start line says which process writes, under which policies, when it
// opens the file or its policies change. A close line says, every ten seconds in which something was decided and
// before the file is left, what became of the numbers since the close line before: how many were written, left out
// as the policy says, and lost.
//
// A close line ends with the SHA-256 of all that the process has written to the file since its last close line, of
// the close line itself up to that hash, and before both the hash of the close line before, in hexadecimal digits.
// So whoever has the files finds a byte that was changed, a line and a file that is missing. It is no signature: who
// can write all files can also compute all hashes anew.
//
// Invariants:
//   - Decisions = written + left out + lost + waiting, in all that Counts returns.
//   - Add and LeaveOut take one lock, allocate nothing, and touch no file: a full disk, a file system that hangs and
//     a pipe that nobody reads cost records, and no time.
//   - The memory is bounded: see MemoryBytes.
//   - Lines are whole. One that was cut short is completed, or removed, or ended by a newline before another begins.
//   - Numbers ascend in the file.
//
// Records are handed to the system ten times a second. Close lines put them on the disk.
//
// Stability: the fields of lines and their meaning are stable, and further ones may come. Go identifiers may change.
package decisionlog
