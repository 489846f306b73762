package outcomefile

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Truths says what was true of decided inputs.
type Truths struct {
	path       string
	byID       map[string]reported
	byDecision map[decisionKey]reported
}

// reported is a truth with its line in the file.
type reported struct {
	class, model string // no model where the file does not say
	line         int
}

// decisionKey tells decisions from each other without an id: scores are as receipts have them.
type decisionKey struct {
	policy string
	time   int64
	scores [decomp.NumScores]float32
}

// truthFields lists the fields of a file of truths by id.
var truthFields = []string{"id", "truth"}

// ReadTruths reads the truth about inputs: from the JSON lines of ckd outcomes export, or from a .csv or .tsv with
// the columns id, the id that the client gave the input, and truth. Rows without a truth are left out. Its errors are
// those of Read.
func ReadTruths(path string) (*Truths, error) {
	t := &Truths{path: path, byID: map[string]reported{}, byDecision: map[decisionKey]reported{}}
	r := newReader(path, Options{})
	r.names, r.needed, r.field = truthFields, truthFields, map[string]string{"id": "id", "truth": "truth"}
	r.accept = func(line, _ int, values map[string]value) {
		id, truth := values["id"], values["truth"].text
		if id.text == "" || truth == "" {
			return
		}
		if before, twice := t.byID[id.text]; twice && before.class != truth {
			r.fault(id.line, id.col, "id", "%s has another truth than in line %d, expected one", strictyaml.Quote(id.text), before.line)
			return
		}
		t.byID[id.text] = reported{class: truth, line: line}
	}
	text, err := r.text()
	if err != nil {
		return nil, err
	}
	if separated(path) {
		readCSV(r, text)
	} else {
		t.readExport(r, text)
	}
	switch {
	case slices.Contains(r.file.Unused, "first_reading"):
		r.faults = nil
		r.fault(1, 1, "id", "is that of a receipt, which no decision log has: expected ckd outcomes export --format jsonl, or the ids that clients gave")
	case len(r.faults) == 0 && len(t.byID)+len(t.byDecision) == 0:
		r.fault(0, 0, "", "no truth, expected columns id and truth, or lines of ckd outcomes export --format jsonl")
	}
	if len(r.faults) > 0 {
		r.faults.Sort()
		return nil, r.faults
	}
	return t, nil
}

// readExport reads the lines of ckd outcomes export.
func (t *Truths) readExport(r *reader, text []byte) {
	n := 0
	for line := range bytes.Lines(text) {
		if n++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var d ledger.Line
		if err := json.Unmarshal(line, &d); err != nil || d.Policy == "" {
			r.fault(n, 1, "", "not a line of ckd outcomes export --format jsonl")
			continue
		}
		if d.Truth == nil {
			continue
		}
		key := decisionKey{policy: d.Policy, time: d.Time.UnixMicro()}
		for s := range key.scores {
			if v := d.Scores[decomp.Score(s).String()]; v != nil {
				key.scores[s] = float32(*v)
			}
		}
		t.byDecision[key] = reported{*d.Truth, d.Model, n}
	}
}

// Check finds truths that are no class of a model. Its error is of type strictyaml.Faults.
func (t *Truths) Check(model string, classes []string) error {
	var faults strictyaml.Faults
	check := func(s reported) {
		if (s.model == "" || s.model == model) && !slices.Contains(classes, s.class) {
			faults = append(faults, strictyaml.Fault{File: t.path, Line: s.line, Col: 1, Field: "truth",
				Reason: strictyaml.Quote(s.class) + " is no class of model " + model + strictyaml.Suggest(s.class, classes)})
		}
	}
	for _, s := range t.byID {
		check(s)
	}
	for _, s := range t.byDecision {
		check(s)
	}
	faults.Sort()
	return faults.Err()
}

// Of returns the truth about the input of a record, and whether it is known.
func (t *Truths) Of(d *decisionlog.Decision) (class string, known bool) {
	if s, ok := t.byID[d.ID]; ok && d.ID != "" {
		return s.class, true
	}
	key := decisionKey{policy: d.PolicyHash, time: d.Time.UnixMicro()}
	for i := range key.scores {
		if v := float32(d.Scores[decomp.Score(i).String()]); !math.IsInf(float64(v), 0) {
			key.scores[i] = v
		}
	}
	s, ok := t.byDecision[key]
	return s.class, ok
}
