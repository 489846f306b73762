package store_test

import (
	"fmt"

	"github.com/ckd-project/ckd/policy/store"
)

// Load reads files and folders as one set, which is without fault or not loaded at all.
func ExampleLoad() {
	set, err := store.Load("../../deploy/policy/fetal-health.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range set.All() {
		fmt.Println(p.Name, p.Classes)
	}
	// Output: fetal-health [normal suspect pathologic]
}
