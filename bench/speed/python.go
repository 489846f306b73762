package main

import (
	"bufio"
	"context"
	_ "embed" // the script
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

//go:embed kernel.py
var kernelScript string

// findPython returns the path of the first python3 that can import numpy, empty for none, and the
// versions of both in words.
func findPython(ctx context.Context) (path, versions string) {
	const script = `import platform, numpy; print("Python", platform.python_version() + ", numpy", numpy.__version__)`
	for _, candidate := range []string{"python3", "/usr/bin/python3"} { // the first may be a virtual environment without it
		if out, err := exec.CommandContext(ctx, candidate, "-c", script).Output(); err == nil {
			return candidate, strings.TrimSpace(string(out))
		}
	}
	return "", "no Python with numpy (Debian: apt-get install python3-numpy)"
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
func startNumpy(ctx context.Context, python string, s shape, values []float32) (*numpy, error) {
	critical, _ := s.sets()
	c := exec.CommandContext(ctx, python, "-c", kernelScript, strconv.Itoa(s.passes), strconv.Itoa(s.inputs),
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
	err = binary.Write(n.in, binary.LittleEndian, values)
	if err == nil {
		var line []byte
		if line, err = n.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &n.results)
		}
	}
	if err != nil {
		n.stop()
		return nil, fmt.Errorf("kernel.py: %w", err)
	}
	return n, nil
}

// run returns the ns per pass x class of a form.
func (n *numpy) run(form string) (float64, error) {
	if _, err := fmt.Fprintln(n.in, form); err != nil {
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
