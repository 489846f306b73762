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

// modelClasses lists the numbers of classes of the models, which are named k and the number.
var modelClasses = []int{4, 10, 100, 1000}

// writePolicy writes the policy of all models to a folder.
func writePolicy(folder string) (string, error) {
	var b strings.Builder
	b.WriteString("models:\n")
	for _, k := range modelClasses {
		critical, _ := shape{classes: k}.sets()
		names := classNames(k)
		fmt.Fprintf(&b, "  - name: %s\n    version: %s\n    classes: [%s]\n    critical: [%s]\n", modelName(k), policyVersion,
			strings.Join(names, ", "), strings.Join(names[:len(critical)], ", "))
		fmt.Fprintf(&b, "    passes: {fewest: 5}\n    reliability_threshold: %v\n", reliability)
		fmt.Fprintf(&b, "    primary: {score: c_crit_max, threshold: %v}\n    fallback: {score: cbec, threshold: %v}\n",
			primaryThreshold, fallbackThreshold)
	}
	path := filepath.Join(folder, "policy.yaml")
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

func modelName(classes int) string { return "k" + strconv.Itoa(classes) }

func classNames(classes int) []string {
	names := make([]string, classes)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return names
}
