// Package follow keeps what the passes of open inputs say so far, pass by pass, for
// a settle.Rule to look at.
//
// It has the means of all classes, the second and third moments of those that the
// policy's scores and gate need, and the co-moments of the pairs of cbec, updated in
// place (Welford, Pebay 2008). A pass costs O(K + critical + pairs) multiplications, and
// asking as much, and up to five rough logarithms, good to 0.006: a statistic may be any
// rising function, as long as it is the same where rules are learned and where they are
// used. Nothing is allocated. Of many classes, or pairs, package kernel does the
// arithmetic.
//
// It is beside decomp's Accumulator, which keeps passes and computes them once, at
// the end: what is settled is answered with that result. The scores agree with
// decomp's to 1e-9 relative where well conditioned.
package follow
