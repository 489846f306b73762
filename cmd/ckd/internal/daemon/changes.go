package daemon

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/policy"
)

// logChanges logs what a reload has changed, one line for each model.
func logChanges(log *zap.Logger, before, now []*policy.Policy) {
	was := map[string]*policy.Policy{}
	for _, p := range before {
		was[p.Name] = p
	}
	for _, p := range now {
		old := was[p.Name]
		delete(was, p.Name)
		if old == nil {
			log.Info("policy added", zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash))
		} else if changes := changesOf(old, p); len(changes) > 0 {
			log.Info("policy changed", zap.String("model", p.Name), zap.Strings("changes", changes))
		}
	}
	for _, p := range before {
		if was[p.Name] != nil {
			log.Info("policy removed", zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash))
		}
	}
}

// mostChanges bounds the changes logged for one model: a calibration has hundreds of numbers.
const mostChanges = 20

// changesOf returns the lines of a model's policy file that are gone, after "- ", and those that are new,
// after "+ ".
func changesOf(before, now *policy.Policy) (changes []string) {
	old, current := linesOf(before), linesOf(now)
	for _, side := range []struct {
		sign         string
		lines, other []string
	}{{"- ", old, current}, {"+ ", current, old}} {
		for _, line := range side.lines {
			if !slices.Contains(side.other, line) {
				changes = append(changes, side.sign+shorten(strings.TrimSpace(line)))
			}
		}
	}
	if left := len(changes) - mostChanges; left > 0 {
		changes = append(changes[:mostChanges], fmt.Sprintf("and %d more", left))
	}
	return changes
}

func linesOf(p *policy.Policy) []string { return strings.Split(string(p.Marshal()), "\n") }

// shorten cuts a long line, most likely a list.
func shorten(value string) string {
	const most = 120
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "..."
}
