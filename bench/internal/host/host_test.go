package host_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/bench/internal/host"
)

// TestNoPython checks that the error says why each candidate will not do.
func TestNoPython(t *testing.T) {
	for given, why := range map[string]string{
		"/no/such/python": "/no/such/python (not found)",
		"/bin/false":      "/bin/false (cannot import numpy)",
	} {
		_, err := host.FindPython(t.Context(), given)
		if !errors.As(err, new(*host.NoPythonError)) || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, expected %q", err, why)
		}
	}
}
