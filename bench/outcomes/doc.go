// Command outcomes measures, on recordings, what package outcome/evidence makes of outcomes: how
// often it is wrong, how soon it sees a change, and what becomes of it where outcomes are repeated,
// mislabelled, missing or corrected:
//
//	go run ./bench/outcomes -recordings internal/recordings
//
// One random half of each recording fixes a policy: thresholds, the model of risk and the mean by
// which audits follow the risk. The inputs of the other half come independently and with
// replacement, so that the true risk is known. A change gives some of them another weight. Inputs
// that nobody reviews change nothing; where that saves time, the reviewed ones are drawn directly,
// with how many others came in between.
//
// docs/outcomes-measured.md has what comes out, with what each figure is a share of.
package main
