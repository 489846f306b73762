package client

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Which results carry a receipt. The zero value means none.
const (
	ReceiptsReviewed = ckdv1.Receipts_RECEIPTS_REVIEWED // those that a person looks at
	ReceiptsAll      = ckdv1.Receipts_RECEIPTS_ALL
)

// InputContext holds what receipts say of an input beside its decision. Receipts hold hashes of it,
// never the text.
type InputContext struct {
	// Group names what the input belongs to, such as a patient. May be empty.
	Group string
	// Slices holds values of the slices that the policy's audit declares, by name: at most 8. The
	// daemon leaves out what the policy does not declare.
	Slices map[string]string
}

// contextMessages returns contexts as the wire has them. There must be none, or one for each input.
func contextMessages(contexts []InputContext, inputs int) ([]*ckdv1.InputContext, error) {
	if len(contexts) == 0 {
		return nil, nil
	}
	if len(contexts) != inputs {
		return nil, fmt.Errorf("%d contexts, expected none or one for each of %d inputs", len(contexts), inputs)
	}
	messages := make([]*ckdv1.InputContext, len(contexts))
	for i, c := range contexts {
		valid := utf8.ValidString(c.Group)
		slices := make(map[string]string, len(c.Slices))
		for name, value := range c.Slices {
			valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
			slices[name] = value
		}
		if !valid {
			return nil, fmt.Errorf("context %d is %q, expected UTF-8", i, c)
		}
		messages[i] = &ckdv1.InputContext{Group: c.Group, Slices: slices}
	}
	return messages, nil
}

// contextBytes returns an upper bound on the size of contexts in a message.
func contextBytes(contexts []*ckdv1.InputContext) int {
	n := 0
	for _, c := range contexts {
		n += proto.Size(c) + idOverhead
	}
	return n
}
