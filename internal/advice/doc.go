// Package advice says what rows of values may be that are no probabilities, and what to do with them.
//
// It never advises to declare logits where the softmax of the values would be wrong without a word:
// values in [0,1] are not logits, nor are counts and percentages.
package advice
