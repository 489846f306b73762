package recordings

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"

	"github.com/ckd-project/ckd/internal/record"
)

//go:embed ctg-mcdropout.json ctg-mcdropout.labels.npy ctg-mcdropout.passes.npy
var files embed.FS

// Recording holds labelled passes of one model.
type Recording struct {
	Classes        []string `json:"classes"`
	Critical, Safe []int
	Note           string
	Passes         *record.Passes `json:"-"`
	Labels         []int          `json:"-"`
}

// CTGMCDropout returns the cardiotocography recording of an MC-dropout network: 30 passes of 2126
// inputs over 3 classes. README.md names its source.
func CTGMCDropout() (*Recording, error) {
	const name = "ctg-mcdropout"
	about, err := files.ReadFile(name + ".json")
	if err != nil {
		return nil, err
	}
	r := &Recording{}
	if err := json.Unmarshal(about, r); err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	passes, err := readArray(name + ".passes.npy")
	if err != nil {
		return nil, err
	}
	if r.Passes, err = record.NewPasses(name, passes, record.Options{}); err != nil {
		return nil, err
	}
	labels, err := readArray(name + ".labels.npy")
	if err != nil {
		return nil, err
	}
	for _, label := range labels.Int64 {
		r.Labels = append(r.Labels, int(label))
	}
	return r, nil
}

func readArray(name string) (*record.Array, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return record.Read(name, bytes.NewReader(data), int64(len(data)))
}
