// Package follow keeps what the passes of open inputs say so far, pass by pass, for
// a settle.Rule to look at.
//
// It has the means of all classes, the second and third moments of those that the
// policy's scores and gate need, and the co-moments of the safe x critical pairs,
// updated in place (Welford, Pebay 2008). A pass costs O(K + critical + pairs)
// multiplications, and asking O(K + pairs) and five rough logarithms; nothing is allocated.
//
// It is beside decomp's Accumulator, which keeps passes and computes them once, at
// the end: what is settled is answered with that result. The scores agree with
// decomp's to 1e-9 relative where well conditioned.
package follow
