package decisionlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Start is a start line: who writes from here on, and under which policies.
type Start struct {
	Process
	Time string `json:"time"`
	// Why is "file" where the file was opened, and "policies" where policies changed.
	Why string `json:"why"`
	// Software is the version of the daemon.
	Software string `json:"software"`
	// From is the first number that no close line before has counted.
	From uint64 `json:"from"`
	// After is the hash of the last close line of the process; empty for none.
	After    string   `json:"after,omitempty"`
	Policies []Policy `json:"policies"`
}

// What Start.Why may be.
const (
	startFile     = "file"
	startPolicies = "policies"
)

// Close is a close line: what became of the decisions from one number to another.
type Close struct {
	Process string `json:"process"`
	Time    string `json:"time"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"` // From - 1 for none
	Written uint64 `json:"written"`
	LeftOut uint64 `json:"left_out"`
	Lost    uint64 `json:"lost"`
	// End says that the process stopped in order.
	End bool `json:"end,omitempty"`
	// After is the hash of the close line before; empty for the first of a process.
	After  string `json:"after,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// sumKey begins the hash of a close line. What stands before it is hashed.
const sumKey = `,"sha256":"`

// Line is one line of a file.
type Line struct {
	File string
	// Number of the line in the file, from 1.
	Number int
	// Text is the line with its newline, if it has one. It is valid until the next line is read.
	Text []byte
	// Start or Close is what the line says, if it is no record. Record is the number of a record.
	Start  *Start
	Close  *Close
	Record uint64
	// Fault says why the line is none of a decision log; empty where it is one.
	Fault string
}

// Torn reports whether the line lacks its end.
func (l *Line) Torn() bool { return !bytes.HasSuffix(l.Text, []byte{'\n'}) }

// Decision is a record as it is read. What a record lacks is empty or nil. Further fields may come.
type Decision struct {
	Number        uint64             `json:"number"`
	Time          time.Time          `json:"time"`
	ID            string             `json:"id"`
	IDHash        string             `json:"id_hash"`
	Model         string             `json:"model"`
	ModelVersion  string             `json:"model_version"`
	PolicyHash    string             `json:"policy_hash"`
	Action        string             `json:"action"`
	Reason        string             `json:"reason"`
	Gate          string             `json:"gate"`
	Score         string             `json:"score"`
	Value         *float64           `json:"value"`
	Threshold     *float64           `json:"threshold"`
	DecidingClass string             `json:"deciding_class"`
	Predicted     string             `json:"predicted"`
	Stratum       string             `json:"stratum"`
	Risk          *float64           `json:"risk"`
	Scores        map[string]float64 `json:"scores"`
	Passes        int                `json:"passes"`
	Settled       bool               `json:"settled"`
	Review        bool               `json:"review"`
	Propensity    *float64           `json:"propensity"`
	Share         *float64           `json:"share"`
	TraceID       string             `json:"trace_id"`
	Mean          []float64          `json:"mean"`
	C             []float64          `json:"c"`
	Skewness      []float64          `json:"skewness"`
}

// Decision returns the record of a line; nil for a start or close line. The error is of a line that is none of a log.
func (l *Line) Decision() (*Decision, error) {
	if l.Fault != "" {
		return nil, errors.New("not a line of a decision log: " + l.Fault)
	}
	if l.Record == 0 {
		return nil, nil
	}
	var d Decision
	if err := json.Unmarshal(l.Text, &d); err != nil {
		return nil, fmt.Errorf("not a record: %w", err)
	}
	return &d, nil
}

// mostLine bounds a line that is read: start lines have policies.
const mostLine = 64 << 20

// Each calls take with the lines of a file, which may be compressed (.gz), up to the first error of either.
func Each(path string, take func(*Line) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if errors.Is(err, io.EOF) {
			return nil // an empty file
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		in = z
	}
	return eachLine(path, in, take)
}

// eachLine is Each for what a reader has.
func eachLine(name string, in io.Reader, take func(*Line) error) error {
	r := bufio.NewReaderSize(in, 1<<20)
	var long []byte // the beginning of a line that the reader has no room for
	for number := 1; ; {
		text, err := r.ReadSlice('\n')
		if len(long) > 0 || errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, text...)
			text = long
		}
		if len(text) > mostLine {
			return fmt.Errorf("%s:%d: a line of more than %d bytes", name, number, mostLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(text) > 0 {
			line := Line{File: name, Number: number, Text: text}
			line.read()
			if err := take(&line); err != nil {
				return err
			}
			number++
			long = long[:0]
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: cannot be read on: %w", name, number, err)
		}
	}
}

// read finds out what the line is.
func (l *Line) read() {
	var content struct {
		Start  *Start `json:"start"`
		Close  *Close `json:"close"`
		Number uint64 `json:"number"`
	}
	if err := json.Unmarshal(l.Text, &content); err != nil {
		l.Fault = "not JSON: " + err.Error()
		return
	}
	l.Start, l.Close, l.Record = content.Start, content.Close, content.Number
	if l.Start == nil && l.Close == nil && l.Record == 0 {
		l.Fault = "neither a record nor a start or close line"
	}
}
