package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	gate "github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestMain lets the test binary play the roles that the program starts of itself.
func TestMain(m *testing.M) {
	if played, err := playRole(context.Background(), os.Args[1:]); played {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFault)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestDaemons checks that every server answers correctly under a tiny load, however the passes are
// sent.
func TestDaemons(t *testing.T) {
	gate.Long(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("CPU time is read from /proc")
	}
	folder := t.TempDir()
	if len(folder) > 60 {
		var err error
		if folder, err = os.MkdirTemp("", "ckd-speed-"); err != nil { // paths of sockets are short
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
	}
	o := setting{folder: folder, binary: filepath.Join(folder, "ckd")}
	if err := build(t.Context(), o.binary); err != nil {
		t.Fatal(err)
	}
	all, stop, err := o.startAll(t.Context())
	defer stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []mode{batched, passByPass, unary} {
		t.Run(string(m), func(t *testing.T) {
			c, err := compareServers(t.Context(), shape{7, 4, 3}, m, 1, 100*time.Millisecond, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range slices.Concat([]float64{c.rate, c.cpu}, c.rates[:], c.cpus[:]) {
				if !(x > 0) || math.IsInf(x, 0) {
					t.Errorf("%+v has %v, expected positive numbers", c, x)
				}
			}
		})
	}
}

// TestVerifyFindsWrongAnswers checks that verify refuses the answer to another input.
func TestVerifyFindsWrongAnswers(t *testing.T) {
	s := shape{7, 4, 2}
	m := newIdiomatic(true).models[modelName(s.classes)]
	answer := func(values []float32) []*ckdv1.Result {
		results := make([]*ckdv1.Result, s.inputs)
		for i := range results {
			var rows [][]float32
			for pass := range s.passes {
				at := (pass*s.inputs + i) * s.classes
				rows = append(rows, values[at:at+s.classes])
			}
			d, err := m.decompose(rows)
			if err != nil {
				t.Fatal(err)
			}
			results[i] = &ckdv1.Result{InputId: "12345678", Row: uint32(i), Outcome: &ckdv1.Result_Decomposition{Decomposition: d}}
		}
		return results
	}
	values := s.values(1)
	if err := checkResults(s, values, answer(values)); err != nil {
		t.Errorf("the right answer: %v", err)
	}
	if err := checkResults(s, values, answer(s.values(2))); err == nil || !strings.Contains(err.Error(), "input 0") {
		t.Errorf("the answer to other values: %v, expected a fault of input 0", err)
	}
	if err := checkResults(s, values, answer(values)[:1]); err == nil || !strings.Contains(err.Error(), "1 results") {
		t.Errorf("one answer of two: %v", err)
	}
}

// TestPayload checks that a group's messages carry all its values, and open it once.
func TestPayload(t *testing.T) {
	s := shape{5, 3, 2}
	for _, m := range []mode{batched, passByPass} {
		p, err := newPayload(s, m, 2)
		if err != nil {
			t.Fatal(err)
		}
		var values []float32
		for i, message := range p.groups[1].messages {
			var got ckdv1.DecomposeStreamRequest
			if err := proto.Unmarshal(message, &got); err != nil {
				t.Fatal(err)
			}
			b := got.GetBlock()
			if b.GetGroup() != 1 || (len(b.GetInputIds()) == s.inputs) != (i == 0) || len(b.GetValues()) != int(b.GetPasses())*s.inputs*s.classes {
				t.Errorf("%s: message %d is %v", m, i, b)
			}
			values = append(values, b.GetValues()...)
		}
		if !slices.Equal(values, s.values(1)) {
			t.Errorf("%s: the messages have other values than the shape", m)
		}
	}
}

// TestKernels checks that ckd, C and, if there is one, numpy agree and are timed.
func TestKernels(t *testing.T) {
	python, _ := findPython(t.Context()) // or empty
	cells, err := kernelCells(t.Context(), shape{30, 4, 1}, 1, python)
	if err != nil {
		t.Fatal(err)
	}
	for i, cell := range cells {
		if cell == "0.00" || cell == "-" && i != 3 && i != 4 && python != "" {
			t.Errorf("cells are %q, expected times and ratios", cells)
		}
	}
	for _, wrong := range []map[string][]float64{{"m": {1, 2}}, {"m": {1, 2, 3 + 1e-8}}, {"m": {1, 2, math.NaN()}}} {
		if err := agree("wrong", wrong, map[string][]float64{"m": {1, 2, 3}}); err == nil {
			t.Errorf("%v agrees with 1, 2, 3", wrong)
		}
	}
}
