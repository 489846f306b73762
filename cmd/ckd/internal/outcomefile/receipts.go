package outcomefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// A Receipt is a receipt that a site has kept, with the case that it belongs to; empty for none.
type Receipt struct {
	Line    int
	Case    string
	Receipt []byte
}

// ReadReceipts reads a file of receipts that ends in .csv or .tsv, with a header, or in .jsonl, with an
// object in each line. Rows without a receipt are left out. Its error is as that of Read.
func ReadReceipts(path string, columns map[string]string) ([]Receipt, error) {
	lines := strings.EqualFold(filepath.Ext(path), ".jsonl")
	if !lines && !separated(path) {
		return nil, fmt.Errorf("%s: expected a file that ends in .csv, .tsv or .jsonl", path)
	}
	r := newReader(path, Options{Columns: columns})
	r.names, r.needed, r.field = ReceiptFields, ReceiptFields[:1], map[string]string{}
	for _, name := range r.names {
		r.field[plain(r.nameOf(name))] = name
	}
	var found []Receipt
	r.accept = func(line, _ int, values map[string]value) {
		v := values["receipt"]
		if v.text == "" {
			return
		}
		var o ckdv1.Outcome
		if err := readReceipt(&o, v.text); err != nil {
			r.fault(v.line, v.col, r.nameOf("receipt"), "%v", err)
			return
		}
		found = append(found, Receipt{line, values["case"].text, o.GetReceipt()})
	}
	text, err := r.text()
	if err != nil {
		return nil, err
	}
	if lines {
		r.readLines(text)
	} else {
		readCSV(r, text)
	}
	if len(r.faults) == 0 && len(found) == 0 {
		r.fault(0, 0, "", "no receipt, expected at least one in the column or key %s", r.nameOf("receipt"))
	}
	if len(r.faults) > 0 {
		r.faults.Sort()
		return nil, r.faults
	}
	return found, nil
}

// A ReceiptText is a receipt as a file has it, and may be none.
type ReceiptText struct {
	Line int
	Text string
	// Fault says why the line has no receipt; empty where it has one.
	Fault string
}

// ReceiptTexts finds the receipts in a file, by its name: a .csv or .tsv has a column receipt, and any other file a
// receipt, or a JSON object with the key receipt, in each line. Lines without any are left out. Its error is of a file
// that as a whole is none of these.
func ReceiptTexts(path string, data []byte) (found []ReceiptText, err error) {
	text, err := toText(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if separated(path) {
		r := newReader(path, Options{})
		r.names, r.needed, r.field = ReceiptFields[:1], ReceiptFields[:1], map[string]string{"receipt": "receipt"}
		r.accept = func(line, _ int, values map[string]value) {
			if v := values["receipt"]; v.text != "" {
				found = append(found, ReceiptText{Line: line, Text: v.text})
			}
		}
		readCSV(r, text)
		return found, r.faults.Err()
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		text := ReceiptText{Line: n, Text: string(bytes.TrimSpace(line))}
		if strings.HasPrefix(text.Text, "{") {
			var object struct{ Receipt string }
			if err := json.Unmarshal([]byte(text.Text), &object); err != nil {
				text.Fault = fmt.Sprintf("not a JSON object with a text as its receipt: %v", err)
			}
			text.Text = object.Receipt
		}
		if text.Text != "" || text.Fault != "" {
			found = append(found, text)
		}
	}
	return found, nil
}

// Receipt returns the sealed receipt.
func (t *ReceiptText) Receipt() ([]byte, error) {
	if t.Fault != "" {
		return nil, errors.New(t.Fault)
	}
	var o ckdv1.Outcome
	err := readReceipt(&o, t.Text)
	return o.GetReceipt(), err
}

// readLines reads JSON lines.
func (r *reader) readLines(text []byte) {
	n := 0
	for line := range bytes.Lines(text) {
		if n++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var object map[string]any
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber() // a case's number keeps all its digits
		if err := decoder.Decode(&object); err != nil {
			r.fault(n, 1, "", "not a JSON object: %v", err)
			continue
		}
		values := map[string]value{}
		for _, field := range r.names {
			switch v := object[r.nameOf(field)].(type) {
			case nil:
			case string:
				values[field] = value{v, n, 1}
			default:
				if field != "receipt" { // a case's number
					values[field] = value{fmt.Sprint(v), n, 1}
					continue
				}
				r.fault(n, 1, r.nameOf(field), "no text, expected the receipt in base64")
			}
		}
		r.add(n, 1, values)
	}
}
