package policy_test

import (
	"fmt"

	"github.com/ckd-project/ckd/policy"
)

// A policy file is parsed, and the policy decides on an input whose scores are known.
func ExampleParse() {
	set, err := policy.Parse(policy.File{Name: "lesions.yaml", Data: []byte(`
models:
  - name: lesions
    classes: [benign, malignant]
    critical: [malignant]
    gate: never
    passes: {fewest: 2, expected: 30}
    primary: {score: c_crit_max, threshold: 0.05}
`)})
	if err != nil {
		fmt.Println(err) // every fault of every file, with line and column
		return
	}
	p := set.All()[0]
	for _, value := range []float64{0.01, 0.2} {
		d := p.Decide(policy.Evidence{Primary: value, PrimaryClass: 1, Skewness: []float64{0, 0}})
		fmt.Println(d.Action, d.Reason)
	}
	// Output:
	// retain under_threshold
	// defer above_threshold
}

// Build fills in the defaults of what a program gives, checks it and computes its hash.
func ExampleBuild() {
	p, err := policy.Build(policy.Policy{
		Name:           "lesions",
		Classes:        []string{"benign", "malignant"},
		Critical:       []int{1},
		ExpectedPasses: 30,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Gate, p.Primary.Score, p.Fallback.Score, p.FewestPasses, len(p.Hash))
	// Output: any-critical c_crit_max cbec 4 64
}
