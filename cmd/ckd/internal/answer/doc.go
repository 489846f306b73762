// Package answer writes what a command says about one input: as a line of JSON or a record of CSV.
//
// ckd decompose and ckd replay print the same [Answer]: it is made of a result that was computed here,
// or of a daemon's reply.
package answer
