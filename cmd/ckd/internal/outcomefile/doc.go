// Package outcomefile reads files of outcomes, as people and labelling tools write them: CSV with a
// header. Every fault has its place, and all of them are reported together.
package outcomefile
