// Package host finds what a comparison runs on: the processor, and a Python with numpy.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Python names an interpreter that has numpy.
type Python struct {
	Path     string
	Versions string // of Python and numpy, in words
}

// NoPythonError reports that no Python with numpy was found.
type NoPythonError struct{ Tried []string }

func (e *NoPythonError) Error() string {
	return "no Python with numpy to compare with, expected one of: " + strings.Join(e.Tried, ", ") +
		"\n(Debian: apt-get install python3-numpy; elsewhere: pip install numpy, and -python PATH)"
}

// FindPython returns the interpreter given, or else the first python3 that can import numpy. It fails
// with a *NoPythonError, or with the error of ctx.
func FindPython(ctx context.Context, given string) (*Python, error) {
	candidates := []string{"python3", "/usr/bin/python3"} // the first may be a virtual environment without it
	if given != "" {
		candidates = []string{given}
	}
	const versions = `import platform, numpy; print("Python", platform.python_version() + ", numpy", numpy.__version__)`
	missing := &NoPythonError{}
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			missing.Tried = append(missing.Tried, candidate+" (not found)")
			continue
		}
		out, err := exec.CommandContext(ctx, path, "-c", versions).Output()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			missing.Tried = append(missing.Tried, fmt.Sprintf("%s (cannot import numpy)", path))
			continue
		}
		return &Python{Path: path, Versions: strings.TrimSpace(string(out))}, nil
	}
	return nil, missing
}

// Processor returns the name of the processor, where the system knows it.
func Processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
