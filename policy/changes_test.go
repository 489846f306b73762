package policy

import (
	"strings"
	"testing"
)

// TestChanges checks what is said of each change, and that nothing is said where nothing changed.
func TestChanges(t *testing.T) {
	const passes = "  passes: {fewest: 5, expected: 30}\n"
	base := threeClassesText + passes + "  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"
	hash := parseOne(t, base).Hash
	calibrated := base + "  calibrated: {policy_hash: " + hash + ", expected_coverage: {value: 0.8, low: 0.78, high: 0.82}, " +
		"expected_critical_miss_rate: {value: 0.02, low: 0.01, high: 0.04}}\n"
	replaced := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	for name, test := range map[string]struct {
		before, after string
		want          []string // a fragment of each change
	}{
		"nothing":             {calibrated, calibrated, nil},
		"version":             {base, base + "  version: two\n", []string{"Other fields that changed: version."}},
		"stricter":            {base, replaced(base, "0.02", "0.01"), []string{"More inputs are deferred by the largest C_k of a critical class: its threshold is 0.01 nats, before 0.02 nats."}},
		"looser in one":       {base, replaced(base, "0.003", "0.004"), []string{"Fewer inputs are deferred by the confusion"}},
		"in later digits":     {base, replaced(base, "0.003", "0.0030001"), []string{"is 0.0030001, before 0.003."}},
		"observes":            {base, threeClassesText + passes, []string{"It now observes, and defers no input. Before, it defers an input when"}},
		"another gate":        {base, replaced(base, "  primary", "  gate: never\n  primary"), []string{"It now defers an input when the largest"}},
		"reliability":         {base, base + "  reliability_threshold: 0.2\n", []string{"is above 0.2 so that"}},
		"scope":               {base, base + "  scope: predicted-safe\n", []string{"Inputs called critical are never deferred"}},
		"critical":            {base, replaced(base, "[suspect, pathologic]\n  passes", "[pathologic]\n  passes"), []string{"1 of 3 classes): pathologic. Safe: normal and suspect. Before: Critical, not to be missed (2 of 3"}},
		"passes":              {base, replaced(base, "expected: 30", "expected: 20"), []string{"answered at 20. Before:"}},
		"what no text is on":  {base, base + "  top_classes: 2\n", []string{"top_classes"}},
		"audits":              {base, base + "  audit: {rate: 0.02}\n", []string{"New: A person also looks at 2%"}},
		"no audits":           {base + "  audit: {rate: 0.02}\n", base, []string{"No longer: A person also looks"}},
		"a detail of audits":  {base + "  audit: {rate: 0.02}\n", base + "  audit: {rate: 0.02, run_length: 5000}\n", []string{"Other fields that changed: audit."}},
		"calibrated":          {base, calibrated, []string{"New: Expected: 2%", "New: Nothing is guaranteed", "New: The alarm sounds", "New: Calibrated on"}},
		"after a calibration": {calibrated, replaced(calibrated, "0.003}", "0.002}"), []string{"More inputs", "not known: the policy was changed", "Nothing is guaranteed", "No longer: The alarm sounds"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkSentences(t, Changes(parseOne(t, test.before), parseOne(t, test.after)), each(test.want))
		})
	}
}

// each gives each fragment a list of its own.
func each(fragments []string) (lists [][]string) {
	for _, f := range fragments {
		lists = append(lists, []string{f})
	}
	return lists
}
