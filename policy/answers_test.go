package policy

import (
	"strings"
	"testing"
)

// TestAnswers checks how alarms are named, and that answering one changes no hash.
func TestAnswers(t *testing.T) {
	plain := parseOne(t, auditedText)
	for text, want := range map[string]AlarmName{
		"critical FNR 2026-11-03T00:00:00Z":                       {CriticalFNR, "", "2026-11-03T00:00:00Z"},
		"critical miss rate 2026-11-03T04:05:06Z":                 {CriticalMissRate, "", "2026-11-03T04:05:06Z"},
		"critical FNR of a lot of things: b 2026-11-03T00:00:00Z": {CriticalFNR, "a lot of things: b", "2026-11-03T00:00:00Z"},
	} {
		p := parseOne(t, auditedText+"    answers: {alarm: \""+text+"\", by: ann, reason: new readers}\n")
		if *p.Answers != (Answers{want, "ann", "new readers"}) || p.Answers.Alarm.String() != text || p.Hash != plain.Hash {
			t.Errorf("%s: %+v, which prints %s; hash %s, expected %s", text, p.Answers, p.Answers.Alarm, p.Hash, plain.Hash)
		}
		if explained := strings.Join(p.Explain(), " "); !strings.Contains(explained, "It answers the alarm "+text+" of its model (ann: new readers).") {
			t.Errorf("%s: %s", text, explained)
		}
		checkMarshal(t, p)
	}
}
