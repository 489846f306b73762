package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestImage builds the image without a registry, from a binary that the Dockerfile's own command
// built. It runs the image as its user on a read-only root.
func TestImage(t *testing.T) {
	image := newImageBuilder(t)
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`(?m)^#   (CGO_ENABLED=0 go build .*)-o ckd (.*)$`).FindStringSubmatch(string(text))
	if told == nil {
		t.Fatal("the Dockerfile does not say how to build a static binary")
	}
	build := exec.Command("sh", "-c", told[1]+`-o "$0" `+told[2], filepath.Join(image.context, "ckd"))
	build.Dir = ".."
	if r := testbed.Run(t, build); r.Code != 0 {
		t.Fatalf("static build: %s", r.Stderr)
	}
	image.must("bud", image.args("--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abcdef")...)

	said := image.must("inspect", "--type", "image", "--format",
		"{{.Docker.Config.User}} {{.Docker.Config.Entrypoint}} {{.Docker.Config.Cmd}} {{.Docker.Config.Healthcheck.Test}}", "ckd")
	if want := "65532:65532 [/ckd] [serve] [CMD /ckd healthcheck]"; said != want {
		t.Errorf("the image says %q, want %q", said, want)
	}
	for label, want := range map[string]string{
		"title": "ckd", "source": "https://github.com/ckd-project/ckd", "licenses": "Apache-2.0", "version": "1.2.3", "revision": "abcdef",
		"description": "The uncertainty daemon that sits beside a model server",
	} {
		name := "org.opencontainers.image." + label
		if got := image.must("inspect", "--type", "image", "--format", `{{index .OCIv1.Config.Labels "`+name+`"}}`, "ckd"); got != want {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}

	container := image.must("from", "ckd")
	root := image.must("mount", container)
	defer image.must("rm", container)
	defer image.must("umount", container)
	if entries, err := filepath.Glob(filepath.Join(root, "*")); err != nil || !slices.Equal(entries, []string{filepath.Join(root, "ckd")}) {
		t.Errorf("the image has %q, want /ckd alone (error %v)", entries, err)
	}
	policies := filepath.Join(root, "policies")
	if err := os.Mkdir(policies, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(policies, "policy.yaml"), []byte(policyText), 0o644); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	// inside runs ckd in a mount namespace with a read-only root, as the image's user.
	inside := func(args ...string) *exec.Cmd {
		script := `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec chroot --userspec=65532:65532 "$0" /ckd "$@"`
		return exec.Command("unshare", append([]string{"-m", "sh", "-c", script, root}, args...)...)
	}
	serve := regexp.MustCompile(`\bckd (serve .*)`).FindStringSubmatch(readPage(t, "operate.md"))
	if serve == nil {
		t.Fatal("docs/operate.md does not say how to run the image")
	}
	d := testbed.Start(t, inside(strings.Fields(regexp.MustCompile(`0\.0\.0\.0:\d+`).ReplaceAllString(serve[1], "0.0.0.0:0"))...), 1)
	grpc, admin := onLoopback(d.GRPC[0]), onLoopback(strings.TrimPrefix(d.Admin, "http://"))
	r := mustRun(t, "replay", "--addr", grpc, "--model", "fetal-health", "--passes", recording("ctg-ensemble", ".passes.npy"))
	if n := len(decodeLines[any](t, r.Stdout)); n != 2126 {
		t.Errorf("%d inputs answered", n)
	}
	if r := testbed.Run(t, inside("healthcheck", "--admin", admin)); r.Code != 0 {
		t.Errorf("health check: exit %d: %s", r.Code, r.Stderr)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// imageBuilder runs buildah with storage of its own.
type imageBuilder struct {
	t       *testing.T
	context string // folder of the build context
	command []string
}

func newImageBuilder(t *testing.T) *imageBuilder {
	t.Helper()
	if os.Getenv("CKD_REQUIRE_TOOLS") == "" {
		t.Skipf("builds an image, which takes long; to run it in this folder: CKD_REQUIRE_TOOLS=1 go test -run '^%s$'", t.Name())
	}
	t.Parallel()
	buildah := testbed.Program(t, "buildah", "BUILDAH")
	if os.Getuid() != 0 {
		t.Skip("only root may mount the image")
	}
	storage := t.TempDir()
	return &imageBuilder{t, t.TempDir(), []string{
		buildah, "--root", filepath.Join(storage, "root"), "--runroot", filepath.Join(storage, "run"), "--storage-driver", "vfs",
	}}
}

// args returns the arguments that build the image ckd.
func (b *imageBuilder) args(more ...string) []string {
	args := []string{"--isolation", "chroot", "--format", "docker", "--target", "prebuilt", "-t", "ckd", "-f", "../Dockerfile"}
	return append(append(args, more...), b.context)
}

func (b *imageBuilder) run(command string, args ...string) testbed.Result {
	b.t.Helper()
	all := slices.Concat(b.command, []string{command}, args)
	return testbed.Run(b.t, exec.Command(all[0], all[1:]...))
}

// must runs a command of buildah, which must succeed, and returns its output.
func (b *imageBuilder) must(command string, args ...string) string {
	b.t.Helper()
	r := b.run(command, args...)
	if r.Code != 0 {
		b.t.Fatalf("buildah %s %s: %s", command, strings.Join(args, " "), r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// onLoopback returns the loopback address of a port that listens everywhere.
func onLoopback(address string) string {
	return "127.0.0.1" + address[strings.LastIndex(address, ":"):]
}
