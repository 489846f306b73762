package deploytest

import (
	"os"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// ckd is the path of the binary under test, which TestMain builds.
var ckd string

func TestMain(m *testing.M) {
	code := testbed.Main(m, map[string]*string{"../../cmd/ckd": &ckd})
	closeChromium()
	os.Exit(code)
}
