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

	"github.com/ckd-project/ckd/bench/speed/ckernel"
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
	binary := filepath.Join(folder, "ckd")
	if err := build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	o := comparison{Binary: binary, Folder: folder, Rounds: 1, Turn: 100 * time.Millisecond}
	all, stop, err := o.start(t.Context())
	defer stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []mode{batched, passByPass, unary} {
		t.Run(string(m), func(t *testing.T) {
			row, err := o.measureRow(t.Context(), daemonCase{7, 4, 3, m}, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range slices.Concat([]float64{row.Messages, row.CPU, row.SameSink}, row.Over[:], row.CPUOver[:]) {
				if !(x > 0) || math.IsInf(x, 0) {
					t.Errorf("%+v has %v, expected positive numbers", row, x)
				}
			}
		})
	}
}

// TestVerifyFindsWrongAnswers checks that verify refuses the answer to another input.
func TestVerifyFindsWrongAnswers(t *testing.T) {
	s := shape{7, 4, 2}
	m, err := newIdiomatic(true).model(modelName(s.classes))
	if err != nil {
		t.Fatal(err)
	}
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

// TestPayload checks that messages encoded by hand decode to what was meant, group numbers
// included.
func TestPayload(t *testing.T) {
	s := shape{5, 3, 2}
	for _, littleEndian := range []bool{true, false} {
		for _, m := range []mode{batched, passByPass} {
			p, err := newPayload(s, m, 2, littleEndian)
			if err != nil {
				t.Fatal(err)
			}
			g := &p.groups[1]
			const number = firstGroup + 123456789
			g.number(number)
			values := 0
			for i, message := range g.messages {
				var got ckdv1.DecomposeStreamRequest
				if err := proto.Unmarshal(message, &got); err != nil {
					t.Fatal(err)
				}
				b := got.GetBlock()
				n := len(b.GetValues()) + len(b.GetValuesLe())/4
				opens := len(b.GetInputIds()) == s.inputs
				if b.GetGroup() != number || opens != (i == 0) || n != int(b.GetPasses())*s.inputs*s.classes {
					t.Errorf("%s: message %d has group %d, %d passes, %d ids, %d values",
						m, i, b.GetGroup(), b.GetPasses(), len(b.GetInputIds()), n)
				}
				values += n
			}
			if values != s.count() {
				t.Errorf("%s: %d values, expected %d", m, values, s.count())
			}
		}
		var r ckdv1.DecomposeRequest
		p, err := newPayload(s, unary, 1, littleEndian)
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(p.groups[0].messages[0], &r); err != nil {
			t.Fatal(err)
		}
		if r.GetModel() != "k3" || r.GetPasses() != 5 || r.GetInputs() != 2 || len(r.GetInputIds()) != 2 ||
			r.GetLayout() != ckdv1.Layout_LAYOUT_SNK || len(r.GetValues())+len(r.GetValuesLe())/4 != s.count() {
			t.Errorf("the request is %v", &r)
		}
	}
}

// TestKernels checks that ckd, C and, if there is one, numpy agree and are timed.
func TestKernels(t *testing.T) {
	python, _, _ := findPython(t.Context()) // or empty
	for _, path := range []ckernel.Path{ckernel.AVX512, ckernel.AVX2} {
		rows, err := kernelOptions{
			Path: path, Rounds: 1, Python: python, Folder: t.TempDir(), Shapes: []string{"S30K4N1"},
		}.measureAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 1 || !(rows[0].CKD > 0) || !(rows[0].Kernel > 0) || rows[0].Version == "" {
			t.Errorf("rows are %+v, expected one with the times of ckd and its kernel", rows)
		}
	}
	_, err := kernelOptions{Version: "none"}.measureAll(t.Context())
	if err == nil || !strings.Contains(err.Error(), "expected none") {
		t.Errorf("another version than expected: %v", err)
	}
	for _, wrong := range []map[string][]float64{{"m": {1, 2}}, {"m": {1, 2, 3 + 1e-8}}, {"m": {1, 2, math.NaN()}}} {
		if err := agree("wrong", wrong, map[string][]float64{"m": {1, 2, 3}}); err == nil {
			t.Errorf("%v agrees with 1, 2, 3", wrong)
		}
	}
}
