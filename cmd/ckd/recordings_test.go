package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// writeRecording writes 5 passes of 60 inputs with labels as .npy and as .npz.
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
	arrays := map[string]*record.Array{
		"passes": {Shape: []int{passes, inputs, classes}, Float32: values}, "labels": {Shape: []int{inputs}, Int64: labels.Int64[:inputs]},
	}
	file, err := os.Create(path + ".npz")
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(file)
	for name, a := range arrays {
		var npy bytes.Buffer
		if err := record.Write(&npy, a); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+"."+name+".npy", npy.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		member, err := archive.Create(name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := member.Write(npy.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}
