package eval

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
)

// Recording holds the passes of one model over some inputs, and the true classes of these inputs
// where they are known.
type Recording struct {
	// Name stands for the recording in errors, such as the path of a file. It may be empty.
	Name string
	// Classes is the number of classes K.
	Classes int
	// Passes has Passes*Inputs*Classes values.
	Passes decomp.Tensor
	// Labels has the true class of each input, from 0. Nil where it is unknown.
	Labels []int
	// Index has the place of each input in its file, for errors and reports. Nil if it is that in the
	// recording: see Sort.
	Index []int
}

// CheckLabels returns an error unless every input has a label from 0 to Classes-1. The error asks
// whether the labels count from 1 where they look like it.
func (r Recording) CheckLabels() error {
	if len(r.Labels) != r.Passes.Inputs {
		return fmt.Errorf("%d labels, expected %d: one for each input of %s", len(r.Labels), r.Passes.Inputs, r.name())
	}
	for i, label := range r.Labels {
		if label < 0 || label >= r.Classes {
			ask := ""
			if slices.Min(r.Labels) >= 1 && slices.Max(r.Labels) == r.Classes {
				ask = " (do your labels count from 1?)"
			}
			return fmt.Errorf("label %d is %d, expected 0 to %d: %s has %d classes%s", i, label, r.Classes-1, r.name(),
				r.Classes, ask)
		}
	}
	return nil
}

// Place returns the place of input i in its file.
func (r Recording) Place(i int) int {
	if r.Index == nil {
		return i
	}
	return r.Index[i]
}

func (r Recording) name() string { return cmp.Or(r.Name, "the recording") }
