package main

import (
	"context"
	_ "embed" // the script
	"fmt"
	"os/exec"
	"strings"
)

//go:embed evaluate.py
var evaluateScript []byte

// python is an interpreter that has numpy.
type python struct {
	path     string
	versions string
}

// noPythonError says that there is no Python with numpy.
type noPythonError struct{ tried []string }

func (e *noPythonError) Error() string {
	return "no Python with numpy to compare with, expected one of: " + strings.Join(e.tried, ", ") +
		"\n(Debian: apt-get install python3-numpy; elsewhere: pip install numpy, and -python PATH)"
}

// findPython takes the interpreter given, or the first python3 that can import numpy.
func findPython(ctx context.Context, given string) (*python, error) {
	candidates := []string{"python3", "/usr/bin/python3"} // the first may be a virtual environment without it
	if given != "" {
		candidates = []string{given}
	}
	const versions = `import platform, numpy; print("Python", platform.python_version() + ", numpy", numpy.__version__)`
	missing := &noPythonError{}
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			missing.tried = append(missing.tried, candidate+" (not found)")
			continue
		}
		out, err := exec.CommandContext(ctx, path, "-c", versions).Output()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			missing.tried = append(missing.tried, fmt.Sprintf("%s (cannot import numpy)", path))
			continue
		}
		return &python{path: path, versions: strings.TrimSpace(string(out))}, nil
	}
	return nil, missing
}
