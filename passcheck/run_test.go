package passcheck

import (
	"testing"
)

// TestRun checks that inputs in a row count for their caller and for the model. A model whose graph
// ended in a softmax was served through a client that took another one: all values lay in a narrow band,
// every score was small, and every input was retained.
func TestRun(t *testing.T) {
	for classes, length := range map[int]int{2: 256, 3: 64, 1000: 64} {
		model := NewRun(classes, nil)
		broken, right := NewRun(classes, model), NewRun(classes, model)
		for i := range length {
			if broken.Completes() != (i == length-1) {
				t.Errorf("%d classes, after %d squashed inputs: %v", classes, i, broken.Completes())
			}
			right.Count(false) // another caller ends the model's run, but not this one's
			broken.Count(true)
		}
		if model.Completes() || right.Completes() {
			t.Errorf("%d classes: the run of one caller is that of another", classes)
		}
		broken.Count(false)
		if broken.Completes() {
			t.Errorf("%d classes: an input that left the range did not end the run", classes)
		}
		for range length - 1 { // callers of one input each
			NewRun(classes, model).Count(true)
		}
		if !NewRun(classes, model).Completes() {
			t.Errorf("%d classes: callers of one input each are never found", classes)
		}
	}
	var none *Run
	if none.Count(true); none.Completes() {
		t.Error("no run completes")
	}
}
