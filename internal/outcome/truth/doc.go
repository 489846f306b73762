// Package truth says what is known of a decision: which readings were reported, and what they add up
// to. It knows neither where decisions are stored nor what is counted of them.
package truth
