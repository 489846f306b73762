package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Which results carry a receipt. The zero value means none.
const (
	ReceiptsReviewed = ckdv1.Receipts_RECEIPTS_REVIEWED // those that a person looks at
	ReceiptsAll      = ckdv1.Receipts_RECEIPTS_ALL
)

// checkContexts refuses contexts that the daemon would end a stream for. There must be none, or one for
// each input.
func checkContexts(contexts []*ckdv1.InputContext, inputs int) error {
	if len(contexts) != 0 && len(contexts) != inputs {
		return fmt.Errorf("%d contexts, expected none or one for each of %d inputs", len(contexts), inputs)
	}
	for i, c := range contexts {
		if _, err := proto.Marshal(c); err != nil {
			return fmt.Errorf("context %d: %w", i, err)
		}
	}
	return nil
}

// contextBytes returns an upper bound on the size of contexts in a message.
func contextBytes(contexts []*ckdv1.InputContext) int {
	n := 0
	for _, c := range contexts {
		n += proto.Size(c) + idOverhead
	}
	return n
}
