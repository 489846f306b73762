package outcomefile

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ReadExport reads the JSON lines that ckd outcomes export wrote, and returns an outcome for each reading
// with the line that it stands in. Its error is as that of Read.
func ReadExport(path string) (outcomes []*ckdv1.ImportedOutcome, lines []int, err error) {
	r := newReader(path, Options{})
	text, err := r.text()
	if err != nil {
		return nil, nil, err
	}
	n := 0
	for line := range bytes.Lines(text) {
		if n++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var decision ledger.Line
		if err := json.Unmarshal(line, &decision); err != nil {
			r.fault(n, 1, "", "%v, expected a line of ckd outcomes export --format jsonl", err)
			continue
		}
		if len(decision.Receipt) == 0 {
			r.fault(n, 1, "receipt", "none, expected the sealed receipt, as ckd outcomes export --format jsonl writes it")
			continue
		}
		for _, said := range decision.Readings {
			kind, known := kinds[said.Kind]
			if !known {
				r.fault(n, 1, "kind", "%q, expected reading, biopsy or follow-up", said.Kind)
				continue
			}
			outcomes = append(outcomes, &ckdv1.ImportedOutcome{
				Outcome: &ckdv1.Outcome{Receipt: decision.Receipt, Truth: said.Truth, Source: said.Source, Time: timestamppb.New(said.At), SawModel: said.SawModel, Kind: kind},
				By:      said.By, Reported: timestamppb.New(said.Reported),
			})
			lines = append(lines, n)
		}
	}
	if len(r.faults) == 0 && len(outcomes) == 0 {
		r.fault(0, 0, "", "no reading, expected lines of ckd outcomes export --format jsonl")
	}
	if len(r.faults) > 0 {
		return nil, nil, r.faults
	}
	return outcomes, lines, nil
}
