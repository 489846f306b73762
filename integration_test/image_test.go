package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestImage builds the image without a registry, and runs it as the image says:
// not as root, and with nothing to write to. It answers a replay, and its health
// check says that it is well.
func TestImage(t *testing.T) {
	buildah := testbed.Program(t, "buildah", "BUILDAH")
	if os.Getuid() != 0 {
		t.Skip("only root may mount the image")
	}
	context := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(context, "ckd"), "../cmd/ckd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if r := testbed.Run(t, build); r.Code != 0 {
		t.Fatalf("static build: %s", r.Stderr)
	}
	storage := t.TempDir()
	bud := func(args ...string) string {
		t.Helper()
		all := append([]string{"--root", filepath.Join(storage, "root"), "--runroot", filepath.Join(storage, "run"), "--storage-driver", "vfs"}, args...)
		r := testbed.Run(t, exec.Command(buildah, all...))
		if r.Code != 0 {
			t.Fatalf("buildah %s: %s", strings.Join(args, " "), r.Stderr)
		}
		return strings.TrimSpace(r.Stdout)
	}
	bud("bud", "--isolation", "chroot", "--format", "docker", "--target", "prebuilt", "-t", "ckd", "-f", "../Dockerfile", context)
	said := bud("inspect", "--type", "image", "--format",
		"{{.Docker.Config.User}} {{.Docker.Config.Entrypoint}} {{.Docker.Config.Cmd}} {{.Docker.Config.Healthcheck.Test}}", "ckd")
	if want := "65532:65532 [/ckd] [serve] [CMD /ckd healthcheck]"; said != want {
		t.Errorf("the image says %q, want %q", said, want)
	}
	container := bud("from", "ckd")
	root := bud("mount", container)
	defer bud("rm", container)
	defer bud("umount", container)
	if err := os.WriteFile(filepath.Join(root, "policy.yaml"), []byte(policyText), 0o644); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	// As a container runtime would: a mount namespace with a read-only root, and
	// the image's user.
	inside := func(args ...string) *exec.Cmd {
		script := `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec chroot --userspec=65532:65532 "$0" /ckd "$@"`
		return exec.Command("unshare", append([]string{"-m", "sh", "-c", script, root}, args...)...)
	}
	d := testbed.Start(t, inside("serve", "--policy", "/policy.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"), 1)
	r := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--passes", recording("ctg-ensemble", ".passes.npy"))
	if n := len(lines(t, r.Stdout)); n != 2126 {
		t.Errorf("%d inputs answered", n)
	}
	if r := testbed.Run(t, inside("healthcheck", "--admin", strings.TrimPrefix(d.Admin, "http://"))); r.Code != 0 {
		t.Errorf("health check: exit %d: %s", r.Code, r.Stderr)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
