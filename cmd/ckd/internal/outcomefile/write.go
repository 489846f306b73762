package outcomefile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// NewWriter returns a function that writes the parts of an export as lines, of CSV with a header or of
// JSON: the outcomes, or the trail.
func NewWriter(w io.Writer, asCSV, trail bool) func(*ckdv1.ExportOutcomesResponse) error {
	write := func(m proto.Message) error { return writeJSON(w, m) }
	flush := func() error { return nil }
	if asCSV {
		records := csv.NewWriter(w)
		header := recordHeader
		if trail {
			header = []string{"time", "kind", "by", "reason", "policy_hash", "model", "model_version", "figure", "detail"}
		}
		_ = records.Write(header) // flush reports what fails
		write = func(m proto.Message) error {
			if t, ok := m.(*ckdv1.TrailEntry); ok {
				return records.Write([]string{timeText(t.GetTime()), t.GetKind(), safe(t.GetBy()), safe(t.GetReason()), t.GetPolicyHash(),
					t.GetModel(), safe(t.GetModelVersion()), t.GetFigure(), safe(t.GetDetail())})
			}
			return records.Write(record(m.(*ckdv1.OutcomeRecord)))
		}
		flush = func() error {
			records.Flush()
			return records.Error()
		}
	}
	return func(part *ckdv1.ExportOutcomesResponse) error {
		if trail {
			for _, t := range part.GetTrail() {
				if err := write(t); err != nil {
					return err
				}
			}
			return flush()
		}
		for _, o := range part.GetOutcomes() {
			if err := write(o); err != nil {
				return err
			}
		}
		return flush()
	}
}

// writeJSON writes a message as one line.
func writeJSON(w io.Writer, m proto.Message) error {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil { // protojson adds spaces at random
		return err
	}
	line.WriteByte('\n')
	_, err = w.Write(line.Bytes())
	return err
}

var recordHeader = func() []string {
	header := []string{
		"model", "policy_version", "policy_hash", "model_version", "decided", "number", "stratum", "action", "reason", "predicted", "review",
		"propensity", "truth", "source", "time", "kind", "saw_model", "risk",
	}
	for s := range decomp.NumScores {
		header = append(header, decomp.Score(s).String())
	}
	return header
}()

// record returns an outcome as a record of CSV. A figure that does not exist is empty.
func record(o *ckdv1.OutcomeRecord) []string {
	p := o.GetPolicy()
	risk := ""
	if o.Risk != nil {
		risk = number(o.GetRisk())
	}
	r := []string{
		p.GetModel(), safe(p.GetVersion()), p.GetHash(), safe(o.GetModelVersion()), timeText(o.GetDecided()), o.GetNumber(),
		word("STRATUM_", o.GetStratum().String()), word("ACTION_", o.GetAction().String()), word("DECISION_REASON_", o.GetReason().String()),
		safe(o.GetPredicted()), strconv.FormatBool(o.GetReview()), number(o.GetPropensity()), safe(o.GetTruth()), safe(o.GetSource()), timeText(o.GetTime()),
		strings.ReplaceAll(word("OUTCOME_KIND_", o.GetKind().String()), "_", "-"), strconv.FormatBool(o.GetSawModel()), risk,
	}
	for s := range decomp.NumScores {
		value, known := o.GetScores()[decomp.Score(s).String()]
		text := ""
		if known {
			text = number(value)
		}
		r = append(r, text)
	}
	return r
}

func word(prefix, name string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339Nano)
}

// safe keeps a spreadsheet from taking a text that a client sent for a formula.
func safe(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
