// Package whatif says what another policy of a model would have decided about the decisions of a decision log.
//
//	New -> Study.Policy, Study.Truth, then Study.Line for each line of a log -> Study.Report
//
// A record has the scores of its input, and not all else that a policy looks at. What the record lacks is tried in
// every form from which its own policy follows to the recorded decision: the skewness of critical classes, and
// whether passes hardly differed. Where the new policy decides alike in all of these, its decision is known. Where it
// does not, the decision cannot be known, and is counted as such.
//
// Two things are taken for known. An input's passes differ where its mutual information is more than passes that
// hardly differ can have. And softmax was taken twice only where the record says so.
package whatif
