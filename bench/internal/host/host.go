// Package host finds what a comparison runs on: the processor, and a Python with numpy.
package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// FindPython returns the path of the first python3 that can import numpy, with the versions of both
// in words.
func FindPython(ctx context.Context) (path, versions string, err error) {
	const script = `import platform, numpy; print("Python", platform.python_version() + ", numpy", numpy.__version__)`
	for _, candidate := range []string{"python3", "/usr/bin/python3"} { // the first may be a virtual environment without it
		if out, err := exec.CommandContext(ctx, candidate, "-c", script).Output(); err == nil {
			return candidate, strings.TrimSpace(string(out)), nil
		}
	}
	return "", "", errors.New("no Python with numpy (Debian: apt-get install python3-numpy)")
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
