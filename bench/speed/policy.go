package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The policy of every model, and of the idiomatic daemon.
const (
	policyVersion     = "bench"
	reliability       = 0.3
	primaryThreshold  = 0.02
	fallbackThreshold = 0.01
)

// riskText gives a model risk, in the form of two numbers, and a guard.
var riskText = "    guard: {score: mi, threshold: 0.5}\n    calibrated:\n      risk:\n        intercept: -1.25\n" +
	"        terms: [{feature: p_critical, weight: 0.93}]\n        called_critical: {intercept: 0.4, slope: 0.8}\n" +
	"        quantiles: [" + quantiles() + "]\n        prevalence: 0.08\n"

func quantiles() string {
	list := make([]string, 65)
	for i := range list {
		list[i] = fmt.Sprint(float64(i*i) / (64 * 64))
	}
	return strings.Join(list, ", ")
}

// writePolicy writes a policy to a folder.
func writePolicy(folder, name, text string) (string, error) {
	path := filepath.Join(folder, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// policyText returns a policy for models that are named k and the number of their classes, each with
// more fields.
func policyText(classes []int, more string) string {
	var b strings.Builder
	b.WriteString("models:\n")
	for _, k := range classes {
		critical, _ := shape{classes: k}.sets()
		names := classNames(k)
		fmt.Fprintf(&b, "  - name: %s\n    version: %s\n    classes: [%s]\n    critical: [%s]\n", modelName(k), policyVersion,
			strings.Join(names, ", "), strings.Join(names[:len(critical)], ", "))
		fmt.Fprintf(&b, "    passes: {fewest: 5}\n    reliability_threshold: %v\n", reliability)
		fmt.Fprintf(&b, "    primary: {score: c_crit_max, threshold: %v}\n    fallback: {score: cbec, threshold: %v}\n",
			primaryThreshold, fallbackThreshold)
		b.WriteString(more)
	}
	return b.String()
}

func modelName(classes int) string { return "k" + strconv.Itoa(classes) }

func classNames(classes int) []string {
	names := make([]string, classes)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return names
}
