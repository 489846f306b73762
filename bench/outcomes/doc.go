// Command outcomes measures, on recordings, what package evidence makes of outcomes: how
// often it is wrong, and how soon it sees a change:
//
//	go run ./bench/outcomes
//
// One random half of each recording fixes a policy: threshold, the model of risk and the mean by
// which audits follow the risk. The inputs of the other half come independently and with
// replacement, so that the true risk is known. A change gives some of them another weight. Only
// reviewed inputs change the evidence, so they are drawn directly, with the number of others that
// came in between.
package main
