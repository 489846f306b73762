package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/record"
)

// TestDocsOfEvaluate runs the commands of docs/evaluate.md. Those on files of several arrays must print
// what they print for .npy files of the same recording.
func TestDocsOfEvaluate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRecording(t, filepath.Join(dir, "run"))
	for _, args := range docsCommands(t, "evaluate.md") {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			if args[0] == "evaluate" && strings.HasPrefix(args[1], "--") {
				args = append(args, "--format", "json", "--bootstrap", "0")
			}
			reference := make([]string, len(args))
			for i, arg := range args {
				reference[i] = arg
				if name, found := strings.CutPrefix(arg, "run."); found {
					_, array, _ := strings.Cut(name, ":")
					args[i], reference[i] = filepath.Join(dir, arg), filepath.Join(dir, "run."+cmp.Or(array, "passes")+".npy")
				}
			}
			got := runOK(t, args...)
			if slices.Equal(args, reference) {
				return
			}
			// A report names its files with their hashes.
			content := func(out string) string { return regexp.MustCompile(`"source":\{.*?\}\},?`).ReplaceAllString(out, "") }
			if want := runOK(t, reference...); content(got) != content(want) {
				t.Errorf("%.2000s\nexpected, as from .npy:\n%.2000s", got, want)
			}
		})
	}
}

// TestDocsOfCalibrate runs the commands of docs/calibrate.md in their order. Each writes a policy that
// ckd check accepts.
func TestDocsOfCalibrate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range docsCommands(t, "calibrate.md") {
		for i, arg := range args {
			if filepath.Ext(arg) == ".yaml" {
				args[i] = filepath.Join(dir, arg)
			}
		}
		runOK(t, args...)
		runOK(t, "check", args[len(args)-1])
	}
}

// docsCommands returns the arguments of each command of ckd that a page of docs shows in a block of sh,
// with paths of recordings from here.
func docsCommands(t *testing.T, page string) (commands [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		script := strings.ReplaceAll(block[1], "\\\n", " ")
		for _, line := range regexp.MustCompile(`(?m)^ckd (.*)`).FindAllStringSubmatch(script, -1) {
			commands = append(commands, strings.Fields(strings.ReplaceAll(line[1], "internal/recordings/", recordings)))
		}
	}
	if len(commands) == 0 {
		t.Fatalf("docs/%s has no commands", page)
	}
	return commands
}

// TestDocsOfGain compares the misses that docs/evaluate.md tells of recordings with those that ckd
// evaluate counts.
func TestDocsOfGain(t *testing.T) {
	t.Parallel()
	scores := []string{"c_crit_max", "cbec", "mi", "entropy", "maxprob", "p_critical"}
	rows := regexp.MustCompile(`(?m)^\| ([a-z-]*) \| (\d*) \| (all|predicted-safe) \| ([\d |]+) \|$`).
		FindAllStringSubmatch(docsSection(t, "evaluate.md", "## What the gain rests on"), -1)
	if len(rows) < 4 {
		t.Fatalf("%d rows", len(rows))
	}
	var report struct {
		Summary  struct{ Critical int }
		Policies []struct {
			Name, Scope string
			Missed      float64 `json:"critical_missed"`
		}
	}
	var name string
	for _, row := range rows {
		if row[1] != "" {
			name = row[1]
			args := []string{"evaluate", "--passes", recordings + name + ".passes.npy", "--labels", recordings + name + ".labels.npy",
				"--critical", criticalOf(t, name), "--format", "json", "--bootstrap", "0"}
			if err := json.Unmarshal([]byte(runOK(t, args...)), &report); err != nil {
				t.Fatal(err)
			}
			if got := strconv.Itoa(report.Summary.Critical); got != row[2] {
				t.Errorf("%s: %s critical inputs, told %s", name, got, row[2])
			}
		}
		told := strings.Split(row[4], " | ")
		for i, score := range scores {
			for _, p := range report.Policies {
				if got := strconv.FormatFloat(p.Missed, 'f', 0, 64); p.Name == score && p.Scope == row[3] && got != told[i] {
					t.Errorf("%s, scope %s, %s: misses %s, told %s", name, row[3], score, got, told[i])
				}
			}
		}
		if report.Policies == nil {
			t.Fatalf("%s: no policies", name)
		}
	}
}

// criticalOf returns the critical classes of a recording, by number.
func criticalOf(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(recordings + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var sidecar struct{ Critical []int }
	if err := json.Unmarshal(data, &sidecar); err != nil {
		t.Fatal(err)
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(sidecar.Critical), " ", ","), "[]")
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

// docsSection returns the text of a page of docs under a title, up to the next title of its level.
func docsSection(t *testing.T, page, title string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut("\n"+string(data), "\n"+title+"\n")
	if !ok {
		t.Fatalf("%s: no section %q", page, title)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}
