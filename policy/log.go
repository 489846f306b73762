package policy

import (
	"fmt"
	"strconv"
)

// Log says what the decision log keeps of the decisions under the policy, where the daemon has one. It
// decides nothing, and the hash does not cover it.
type Log struct {
	// Which decisions have a record: those to be reviewed, all, or also a share of the others, such as
	// 0.05. To be reviewed is what is deferred or drawn for a review. A share is chosen by a keyed hash of
	// the client's id of an input.
	Decisions LoggedDecisions `key:"decisions" form:"logged" default:"reviewed"`
	// How a record names its input: not at all (off), by a keyed hash of the client's id (hash), or by the
	// id itself (plain). The key is that of receipts, or of the process where there is none.
	ID LoggedID `key:"id" default:"off"`
	// Whether records of what is to be reviewed have mean, C_k and skewness of each class.
	Vectors bool `key:"vectors" otherwise:"false"`
}

// LoggedDecisions says which decisions have a record: LogReviewed, LogAll, or a share as a decimal.
type LoggedDecisions string

// The choices that are no share.
const (
	LogReviewed LoggedDecisions = "reviewed"
	LogAll      LoggedDecisions = "all"
)

// Share returns the share, in [0,1], of the decisions that nobody reviews of which a record is kept.
func (l *Log) Share() float64 {
	switch {
	case l == nil || l.Decisions == LogReviewed || l.Decisions == "":
		return 0
	case l.Decisions == LogAll:
		return 1
	}
	share, _ := strconv.ParseFloat(string(l.Decisions), 64) // the form of the key wants a number
	return share
}

// LoggedID says how records name inputs.
type LoggedID string

// The choices.
const (
	LogNoID    LoggedID = "off"
	LogHashID  LoggedID = "hash"
	LogPlainID LoggedID = "plain"
)

// explainLog says what the decision log keeps.
func (p *Policy) explainLog() string {
	l := p.Log
	if l == nil {
		return ""
	}
	s := "The decision log, where the daemon keeps one, has "
	switch share := l.Share(); share {
	case 0:
		s += "what is deferred or drawn for a review"
	case 1:
		s += "every decision"
	default:
		s += fmt.Sprintf("what is deferred or drawn for a review and %s of the rest", percent(share))
	}
	switch l.ID {
	case LogHashID:
		s += ", with keyed hashes of the inputs' ids"
	case LogPlainID:
		s += ", with the inputs' ids as clients wrote them"
	default:
		s += ", without ids of inputs"
	}
	if l.Vectors {
		s += ", and mean, C_k and skewness of what is to be reviewed"
	}
	return s + "."
}
