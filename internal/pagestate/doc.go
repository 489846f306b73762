// Package pagestate defines the JSON of the triage page: its state, and the list to review.
package pagestate
