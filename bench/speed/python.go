package main

import (
	"bufio"
	"context"
	_ "embed" // the script
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed kernel.py
var kernelScript []byte

// findPython returns the path of the first python3 that can import numpy, with the versions of both
// in words.
func findPython(ctx context.Context) (path, versions string, err error) {
	const script = `import platform, numpy; print("Python", platform.python_version() + ", numpy", numpy.__version__)`
	for _, candidate := range []string{"python3", "/usr/bin/python3"} { // the first may be a virtual environment without it
		if out, err := exec.CommandContext(ctx, candidate, "-c", script).Output(); err == nil {
			return candidate, strings.TrimSpace(string(out)), nil
		}
	}
	return "", "", errors.New("no Python with numpy (Debian: apt-get install python3-numpy)")
}

// numpy is a process that computes the values of a shape with numpy.
type numpy struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	// results by form and name.
	results map[string]map[string][]float64
}

// startNumpy starts a process on values; stop must be called.
func startNumpy(ctx context.Context, python, folder string, s shape, values []float32) (*numpy, error) {
	script, data := filepath.Join(folder, "kernel.py"), filepath.Join(folder, s.String()+".f32")
	if err := os.WriteFile(script, kernelScript, 0o600); err != nil {
		return nil, err
	}
	encoded := make([]byte, 4*len(values))
	if _, err := binary.Encode(encoded, binary.LittleEndian, values); err != nil {
		return nil, err
	}
	if err := os.WriteFile(data, encoded, 0o600); err != nil {
		return nil, err
	}
	critical, _ := s.sets()
	c := exec.CommandContext(ctx, python, script, data, strconv.Itoa(s.passes), strconv.Itoa(s.inputs),
		strconv.Itoa(s.classes), strconv.Itoa(len(critical)))
	c.Stderr = os.Stderr
	// One thread, as all others: BLAS would take every core.
	c.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1", "OMP_NUM_THREADS=1")
	n := &numpy{command: c}
	var err error
	if n.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		return nil, err
	}
	line, err := n.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &n.results)
	}
	if err != nil {
		n.stop()
		return nil, fmt.Errorf("kernel.py: %w", err)
	}
	return n, nil
}

// run returns the ns per pass x class of a form, measured over some seconds.
func (n *numpy) run(form string, seconds float64) (float64, error) {
	if _, err := fmt.Fprintln(n.in, form, seconds); err != nil {
		return 0, err
	}
	line, err := n.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("kernel.py: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

// stop ends the process by ending its input.
func (n *numpy) stop() {
	_ = n.in.Close()     // it may have ended already
	_ = n.command.Wait() // all it had to say is read
}
