package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scoreWords has every score in words: in a sentence, in a table, and the unit of its values.
var scoreWords = map[Score]struct{ sentence, table, unit string }{
	Entropy:            {"predictive entropy", "predictive entropy", "nats"},
	"expected_entropy": {"expected entropy", "expected entropy", "nats"},
	MI:                 {"mutual information", "mutual information", "nats"},
	MaxProb:            {"largest probability", "largest probability", "%"},
	EUVar:              {"variance of all classes together", "variance of all classes", ""},
	VarCrit:            {"largest variance of a critical class", "largest critical variance", ""},
	EUVarCrit:          {"variance of the critical classes together", "variance of critical", ""},
	OvAMI:              {"mutual information of the critical classes, each against the rest", "critical against rest", "nats"},
	"sum_c":            {"sum of C_k over all classes", "sum of C_k", "nats"},
	CCritSum:           {"sum of C_k over the critical classes", "sum of critical C_k", "nats"},
	CCritMax:           {"largest C_k of a critical class", "largest critical C_k", "nats"},
	CBEC:               {"confusion between safe and critical classes", "safe-critical confusion", "nats"},
	PCritical:          {"probability of the critical classes", "probability of critical", "%"},
	RiskScore:          {"risk", "risk", "%"},
}

// Words returns the score as a sentence names it, without an article; "" of an unknown score.
func (s Score) Words() string { return scoreWords[s].sentence }

// Short returns the score as a table names it; "" of an unknown score.
func (s Score) Short() string { return scoreWords[s].table }

// Above says that the score is above a threshold: "the risk is above 5.7%". The score maxprob is one less the
// largest probability, so for a threshold of 0.4 Above says "the largest probability is below 60%".
func (s Score) Above(threshold float64) string {
	than, _ := s.sides()
	return fmt.Sprintf("the %s is %s %s", s.Words(), than, s.Value(threshold))
}

// Compare says how a value of the score lies to a threshold: "risk is 7%, above 5.7%".
func (s Score) Compare(value, threshold float64) string {
	than, within := s.sides()
	if value <= threshold {
		than = within
	}
	return fmt.Sprintf("%s is %s, %s %s", s.Words(), s.Value(value), than, s.Value(threshold))
}

// sides returns the words for values that are deferred and for values that are retained.
func (s Score) sides() (deferred, retained string) {
	if s == MaxProb {
		return "below", "at least"
	}
	return "above", "at most"
}

// Value returns a value of the score with its unit, and of maxprob the largest probability itself.
func (s Score) Value(v float64) string {
	if s == MaxProb {
		v = 1 - v
	}
	switch unit := scoreWords[s].unit; unit {
	case "":
		return strconv.FormatFloat(v, 'g', 3, 64)
	case "%":
		return percent(v)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64) + " " + unit
	}
}

// Words says which inputs the scope lets go to people.
func (s Scope) Words() string {
	if s == PredictedSafe {
		return "only inputs called safe"
	}
	return "any input"
}

// percent returns a share in percent: with one decimal, or two digits of what it is away from 0 or from 100%
// where that is less than 1%.
func percent(share float64) string { return hundredths(share) + "%" }

func hundredths(share float64) string {
	decimals := 1
	if edge := min(share, 1-share); edge > 0 && edge < 0.01 {
		decimals = 1 - int(math.Floor(math.Log10(100*edge)))
	}
	text := strconv.FormatFloat(100*share, 'f', min(decimals, 12), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
