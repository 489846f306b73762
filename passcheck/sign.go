package passcheck

import (
	"fmt"
	"strings"
)

// These are the names of signs.
const (
	DropoutOff         = "dropout_off"     // passes hardly differ
	signSoftmaxTwice   = "softmax_twice"   // probabilities went through a softmax
	signRepeatedPasses = "repeated_passes" // passes that are copies of others
	signConstantPasses = "constant_passes" // passes that are the same for all inputs
	signForeignPasses  = "foreign_passes"  // passes unlike the others
	signEqualInputs    = "equal_inputs"    // inputs that are copies of others
	ChanceLabels       = "chance_labels"   // labels that have nothing to do with the passes
	signPerfectLabels  = "perfect_labels"  // labels that agree with every prediction
)

// Sign says in which way a recording is not what it seems.
type Sign struct {
	// Name is the sign, such as identical passes.
	Name string `json:"sign"`
	// Count counts the passes or inputs that show it, of the Of in the recording.
	Count int `json:"count"`
	Of    int `json:"of"`
	// Passes lists the first passes that show it, from 0; nil where inputs do.
	Passes []int `json:"passes,omitempty"`
	// Text says what was found, what was expected and what to do.
	Text string `json:"text"`
}

// Void returns the signs with which nothing can be certified on a recording. Copies of inputs void nothing
// where they count as one group, and labels may agree in full because the model is good.
func Void(signs []Sign) (void []Sign) {
	for _, s := range signs {
		if s.Name != signEqualInputs && s.Name != signPerfectLabels {
			void = append(void, s)
		}
	}
	return void
}

// Texts returns the texts of signs.
func Texts(signs []Sign) []string {
	var texts []string
	for _, s := range signs {
		texts = append(texts, s.Text)
	}
	return texts
}

// mostListed bounds the passes that a sign lists.
const mostListed = 10

// ofPasses returns a sign that passes show.
func ofPasses(name string, passes []int, of int, format string, args ...any) Sign {
	return Sign{
		Name: name, Count: len(passes), Of: of, Passes: passes[:min(len(passes), mostListed)], Text: fmt.Sprintf(format, args...),
	}
}

// ofInputs returns a sign that inputs show.
func ofInputs(name string, count, of int, format string, args ...any) Sign {
	return Sign{Name: name, Count: count, Of: of, Text: fmt.Sprintf(format, args...)}
}

// capital returns a text with a capital letter.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// listed names passes: "pass 3", "passes 3 and 4".
func listed(passes []int) string {
	var names []string
	for _, s := range passes[:min(len(passes), mostListed)] {
		names = append(names, fmt.Sprint(s))
	}
	more := len(passes) - len(names)
	switch {
	case len(passes) == 1:
		return "pass " + names[0]
	case more > 0:
		return fmt.Sprintf("passes %s and %d more", strings.Join(names, ", "), more)
	}
	return "passes " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
