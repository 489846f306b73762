package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/cmd/ckd/internal/outcomefile"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// receiptsCmd holds the commands about receipts.
type receiptsCmd struct {
	Open receiptsOpenCmd `cmd:"" help:"Print the decisions that receipts hold."`
}

// receiptsOpenCmd opens receipts.
type receiptsOpenCmd struct {
	Files  []string `arg:"" name:"file" help:"Files of receipts, or - for the standard input."`
	Keys   string   `name:"receipt-keys" required:"" type:"path" placeholder:"FILE" help:"File of the keys of receipts, as the daemon has it."`
	Policy []string `placeholder:"PATH" help:"Policies that decided. Files, or folders of them: they have the names of models and classes."`
}

// Help is the long text of ckd receipts open --help.
func (*receiptsOpenCmd) Help() string {
	return `A .csv or .tsv has a column receipt; any other file has in each line a receipt in base64, as the API writes it, or a
JSON object with the key receipt. Each decision is a line of JSON with the fields of a record of the decision log. A
receipt knows its policy by the hash: without it classes are numbers, from 0 on, and model, score and threshold are
missing.

    ckd receipts open --receipt-keys receipt-keys --policy policy.yaml cases.csv

Exit codes: 0 all receipts were opened; 1 some were not, or a file cannot be read; 2 wrong usage.`
}

// Run opens the receipts and prints what they hold.
func (c *receiptsOpenCmd) Run(ctx *cmdContext) error {
	text, err := os.ReadFile(c.Keys)
	if err != nil {
		return err
	}
	keys, err := receipt.ParseKeys(c.Keys, text)
	if err != nil {
		return err
	}
	policies := map[[32]byte]*policy.Policy{}
	for _, path := range c.Policy { // one by one: they may be of one model
		set, err := store.Load(path)
		if err != nil {
			return err
		}
		for _, p := range set.All() {
			policies[p.HashBytes()] = p
		}
	}
	out := bufio.NewWriter(ctx.Stdout)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	faults := 0
	for _, path := range c.Files {
		found, err := readReceipts(ctx, path)
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		for _, text := range found {
			sealed, err := text.Receipt()
			var opened receipt.Receipt
			var id receipt.ID
			if err == nil {
				opened, id, err = keys.Open(sealed)
			}
			if err != nil {
				faults++
				fmt.Fprintf(ctx.Stderr, "ckd: %s:%d: the receipt does not open: %v\n", path, text.Line, err)
				continue
			}
			if err := lines.Encode(newOpened(&opened, id, policies[opened.Policy])); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if faults > 0 {
		return fail(exitFault, nil)
	}
	return nil
}

// readReceipts finds the receipts in a file, or in the standard input.
func readReceipts(ctx *cmdContext, path string) ([]outcomefile.ReceiptText, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(ctx.Stdin)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	return outcomefile.ReceiptTexts(path, data)
}

// opened is a receipt as JSON, with the names of a record of the decision log.
type opened struct {
	Time  time.Time `json:"time"`
	Model string    `json:"model,omitempty"`
	// ModelVersion is known where it is that of the policy, ModelVersionHash otherwise.
	ModelVersion     string             `json:"model_version,omitempty"`
	ModelVersionHash string             `json:"model_version_hash,omitempty"`
	PolicyHash       string             `json:"policy_hash"`
	Action           string             `json:"action"`
	Reason           string             `json:"reason"`
	Gate             string             `json:"gate,omitempty"`
	Score            policy.Score       `json:"score,omitempty"`
	Value            *float32           `json:"value,omitempty"`
	Threshold        *float64           `json:"threshold,omitempty"`
	Predicted        string             `json:"predicted"`
	Stratum          string             `json:"stratum,omitempty"`
	Risk             *float32           `json:"risk,omitempty"`
	Scores           map[string]float32 `json:"scores"`
	Passes           uint32             `json:"passes"`
	Settled          bool               `json:"settled,omitempty"`
	Review           bool               `json:"review,omitempty"`
	Propensity       float32            `json:"propensity"`
	// These a record of the decision log lacks.
	Degenerate bool   `json:"degenerate,omitempty"`
	Group      string `json:"group,omitempty"`
	ReceiptID  string `json:"receipt_id"`
}

// newOpened returns what a receipt holds. The policy that decided may be nil, for not known.
func newOpened(r *receipt.Receipt, id receipt.ID, p *policy.Policy) *opened {
	o := &opened{
		Time: time.UnixMicro(r.Time).UTC(), PolicyHash: hex.EncodeToString(r.Policy[:]), ModelVersionHash: fmt.Sprintf("%016x", r.Version),
		Action: nameOf(r.Action, policy.Retain, policy.Observe), Reason: nameOf(r.Reason, policy.AboveThreshold, policy.Reasons-1), Gate: nameOf(r.Gate, policy.ByPrimary, policy.ByFallback),
		Predicted: strconv.Itoa(int(r.Predicted)), Stratum: r.Stratum.String(), Risk: defined(r.Risk), Scores: map[string]float32{},
		Passes: r.Passes, Settled: r.Settled, Review: r.Review, Propensity: r.Propensity, Degenerate: r.Degenerate, ReceiptID: hex.EncodeToString(id[:]),
	}
	for s, v := range r.Scores {
		if defined(v) != nil {
			o.Scores[decomp.Score(s).String()] = v
		}
	}
	if r.Group != 0 {
		o.Group = strconv.FormatUint(r.Group, 16)
	}
	if p == nil {
		return o
	}
	o.Model = p.Name
	if int(r.Predicted) < len(p.Classes) {
		o.Predicted = p.Classes[r.Predicted]
	}
	if receipt.VersionHash(p.Version) == r.Version {
		o.ModelVersion, o.ModelVersionHash = p.Version, ""
	}
	rule := p.Primary
	switch {
	case policy.Reason(r.Reason) == policy.Unfamiliar && p.Guard != nil:
		rule = policy.Rule{Score: p.Guard.Score, Threshold: p.Guard.Threshold, HasThreshold: true}
	case policy.GateOutcome(r.Gate) == policy.ByFallback:
		rule = p.Fallback
	}
	o.Score = rule.Score
	if rule.HasThreshold {
		o.Threshold = &rule.Threshold
	}
	if v, ok := o.Scores[string(rule.Score)]; ok {
		o.Value = &v
	} else if rule.Score == policy.RiskScore {
		o.Value = o.Risk
	}
	return o
}

// nameOf returns the name of one of the numbers from first to last, and the number itself for one of a later version.
func nameOf[T interface {
	~uint8
	fmt.Stringer
}](number uint8, first, last T) string {
	if number != 0 && (T(number) < first || T(number) > last) {
		return strconv.Itoa(int(number))
	}
	return T(number).String()
}

// defined returns a number, or nil for NaN and infinity.
func defined(v float32) *float32 {
	if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &v
}
