// Package promise says what outcomes say about a promise: whether the risk among a policy's decisions
// lies below its line. It counts decisions, and knows neither where these are stored nor who asks.
//
// Decisions are counted by cohort, the decisions of one period of one policy and model version, in the
// order of decision time and ID: see Counter. What a Count holds is enough for all figures, so that a
// cohort whose decisions did not change is never read again.
//
// Evidence belongs to the model, and goes on across its policies and versions: see Alarms. It takes a
// cohort once, when all its outcomes are due, with what had been reported by then, against the line
// that was in force at its decisions. Later outcomes and corrections change estimates, intervals and a
// replayed evidence that is shown beside it. They never clear an alarm: only a named person does, with a
// reason, or a successor policy that says so.
package promise
