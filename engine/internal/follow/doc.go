// Package follow computes, pass by pass, what the passes of open inputs say so far: the statistics
// that an earlystop.Rule looks at.
//
// It keeps the means of all classes, the second and third moments of those that the scores and the
// gate of the policy need, and the co-moments of the pairs of cbec, all updated in place (Welford,
// Pebay 2008). A pass costs O(K + critical + pairs) multiplications. Asking the rule costs as much,
// and up to five rough logarithms, good to 0.006: a statistic may be any rising function, as long
// as rules are learned and used with the same one. Nothing is allocated. Package kernel does the
// arithmetic where there are many classes or pairs.
//
// Package decomp computes the result that an input is answered with, once and from its passes. The
// scores here agree with it to 1e-9 relative where they are well conditioned.
package follow
