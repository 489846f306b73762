package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/ckd-project/ckd/internal/record"
)

// TestDocsOfRecordings runs the commands of docs/recordings.md on files of one recording, and
// expects what they print for its .npy file.
func TestDocsOfRecordings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRecording(t, filepath.Join(dir, "run"))
	text, err := os.ReadFile("../../docs/recordings.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^ckd .*`).FindAllString(string(text), -1)
	if len(commands) == 0 {
		t.Fatal("the page has no commands")
	}
	for _, line := range commands {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)[1:]
			if args[0] == "evaluate" {
				args = append(args, "--format", "json", "--bootstrap", "0")
			}
			reference := make([]string, len(args))
			for i, arg := range args {
				if name, is := strings.CutPrefix(arg, "run."); is {
					_, array, _ := strings.Cut(name, ":")
					args[i], reference[i] = filepath.Join(dir, arg), filepath.Join(dir, "run."+cmp.Or(array, "passes")+".npy")
				} else {
					reference[i] = arg
				}
			}
			// A report names its files with their hashes.
			content := func(out string) string { return regexp.MustCompile(`"source":\{.*?\}\},?`).ReplaceAllString(out, "") }
			if got, want := content(runOK(t, args...)), content(runOK(t, reference...)); got != want {
				t.Errorf("%.2000s\nexpected, as from .npy:\n%.2000s", got, want)
			}
		})
	}
}

// writeRecording writes 5 passes of 60 inputs with labels in all kinds of files.
func writeRecording(t *testing.T, path string) {
	t.Helper()
	const passes, inputs, classes = 5, 60, 3
	whole, err := record.ReadPasses(recordings+"ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadFile(recordings + "ctg-mcdropout.labels.npy")
	if err != nil {
		t.Fatal(err)
	}
	var values []float32
	for s := range passes {
		from := whole.Offset(s, 0)
		values = append(values, whole.Float32[from:from+inputs*classes]...)
	}
	shape := []int{passes, inputs, classes}
	labels = &record.Array{Shape: []int{inputs}, Int64: labels.Int64[:inputs]}
	for name, a := range map[string]*record.Array{"passes": {Shape: shape, Float32: values}, "labels": labels} {
		f, err := os.Create(path + "." + name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if err := record.Write(f, a); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	type tensor struct {
		Type  string `json:"dtype"`
		Shape []int  `json:"shape"`
		Bytes [2]int `json:"data_offsets"`
	}
	end := 4 * len(values)
	head, err := json.Marshal(map[string]tensor{"passes": {"F32", shape, [2]int{0, end}}, "labels": {"I64", labels.Shape, [2]int{end, end + 8*inputs}}})
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	for _, part := range []any{values, labels.Int64} {
		if file, err = binary.Append(file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+".safetensors", file, 0o600); err != nil {
		t.Fatal(err)
	}

	type row struct {
		Passes [][]float32 `parquet:"passes,list"`
		Labels int64       `parquet:"labels"`
	}
	rows := make([]row, inputs)
	for i := range rows {
		rows[i].Labels = labels.Int64[i]
		for s := range passes {
			at := (s*inputs + i) * classes
			rows[i].Passes = append(rows[i].Passes, values[at:at+classes])
		}
	}
	if err := parquet.WriteFile(path+".parquet", rows); err != nil {
		t.Fatal(err)
	}

	type logged struct {
		Name     string `json:"name"`
		Datatype string `json:"datatype"`
		Shape    []int  `json:"shape"`
		Data     any    `json:"data"`
	}
	var log bytes.Buffer
	for from := 0; from < inputs; from += 20 { // labels are in the requests, passes in the responses
		var answer []float32
		for i := from; i < from+20; i++ {
			for s := range passes {
				at := (s*inputs + i) * classes
				answer = append(answer, values[at:at+classes]...)
			}
		}
		for kind, data := range map[string]any{
			"request":  map[string]any{"inputs": []logged{{"labels", "INT64", []int{20}, labels.Int64[from : from+20]}}},
			"response": map[string]any{"outputs": []logged{{"passes", "FP32", []int{20, passes, classes}, answer}}},
		} {
			if err := json.NewEncoder(&log).Encode(map[string]any{
				"specversion": "1.0", "type": "org.kubeflow.serving.inference." + kind, "source": "http://heart/", "id": fmt.Sprint(from), "data": data,
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(path+".jsonl", log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
