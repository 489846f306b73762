package policy

import (
	"regexp"
	"slices"
)

// Answers states which alarm of its model a policy answers: what the one before was found to miss,
// and what this one does about it. It decides nothing, and the hash does not cover it.
type Answers struct {
	// The alarm, as pages and commands print it: its figure, of a class where it is of one, and when it
	// was raised.
	Alarm AlarmName `key:"alarm,required"`
	// Who answers it.
	By string `key:"by,required" form:"person"`
	// What this policy does about it.
	Reason string `key:"reason,required" form:"reason"`
}

// AlarmName names an alarm among those of a model.
type AlarmName struct {
	Figure Figure
	Class  string // empty for all critical classes
	Raised string // when, in UTC and to the second (RFC 3339), as in 2026-11-03T00:00:00Z
}

const (
	dayForm    = `[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])`
	alarmForm  = `^(critical miss rate|critical FNR)(?: of (.+))? (` + dayForm + `T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)$`
	alarmWords = "an alarm as pages and commands print it: critical miss rate 2026-11-03T00:00:00Z, or critical miss rate of CLASS " +
		"2026-11-03T00:00:00Z"
)

var alarmPattern = regexp.MustCompile(alarmForm)

// String returns the name, such as critical miss rate of melanoma 2026-11-03T00:00:00Z.
func (n AlarmName) String() string { return n.Figure.Of(n.Class) + " " + n.Raised }

// parseAlarmName reads what String returns.
func parseAlarmName(text string) (AlarmName, bool) {
	parts := alarmPattern.FindStringSubmatch(text)
	if parts == nil || !isPrintable(text, 2*maxText) {
		return AlarmName{}, false
	}
	i := slices.IndexFunc(figures, func(f Figure) bool { return f.Words() == parts[1] })
	return AlarmName{figures[i], parts[2], parts[3]}, true
}
