// Package files is what the project uses of a file system, so that tests can let every operation
// fail.
//
// System is the interface, and Machine the file system of the machine. Replace puts a whole file in
// the place of another, of which a crash leaves the one or the other. Package filestest has a system
// whose operations fail.
package files
