// Package labelled reads the recordings of internal/recordings that have critical classes, each with
// a policy to complete.
package labelled

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// Recording holds labelled passes, decomposed. Its passes have the name of the recording.
type Recording struct {
	eval.Recording
	Base  *policy.Policy // without thresholds
	Table *eval.Table
}

// Each calls do with every recording whose name contains only. It runs in the root of the module.
func Each(only string, do func(*Recording) error) error {
	files, err := filepath.Glob("internal/recordings/*" + only + "*.json")
	if err != nil {
		return err
	}
	for _, file := range files {
		r, err := read(strings.TrimSuffix(file, ".json"))
		if err == nil && r != nil {
			err = do(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// read reads a recording; it returns nil where no class is critical.
func read(base string) (*Recording, error) {
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return nil, err
	}
	var about struct {
		Classes  []string
		Critical []int
	}
	if err := json.Unmarshal(text, &about); err != nil || len(about.Critical) == 0 {
		return nil, err
	}
	passes, err := record.ReadPasses(base+".passes.npy", record.Options{})
	if err != nil {
		return nil, err
	}
	labels, err := record.ReadLabels(base + ".labels.npy")
	if err != nil {
		return nil, err
	}
	r := &Recording{Recording: eval.Recording{Name: filepath.Base(base), Classes: passes.K, Labels: labels, Passes: decomp.Tensor{
		Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64,
	}}}
	r.Base, err = policy.Build(policy.Policy{
		Name: "bench", Classes: about.Classes, Critical: about.Critical, Saturated: policy.HandleByScore, FewestPasses: 2, Gate: policy.Never,
	})
	if err != nil {
		return nil, err
	}
	r.Table, err = eval.NewTable(context.Background(), r.Recording, engine.Spec(r.Base), nil)
	return r, err
}

// Take returns some inputs of the table with their labels, in any order and with repetitions.
func (r *Recording) Take(inputs []int) (*eval.Table, []int) {
	labels := make([]int, len(inputs))
	for j, i := range inputs {
		labels[j] = r.Labels[i]
	}
	return r.Table.Select(inputs), labels
}

// IsCritical reports whether a class is critical.
func (r *Recording) IsCritical(class int) bool { return slices.Contains(r.Base.Critical, class) }
