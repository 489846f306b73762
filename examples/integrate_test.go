package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestIntegrate runs every command of docs/integrate.md in order, from the project's root. It
// replaces ports by those of the daemons that the page starts, and writes files to a temporary
// folder.
func TestIntegrate(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	text, err := os.ReadFile("../docs/integrate.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPage(t)
	p.writeAccess(string(text))
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, command := range commands(block[1]) {
			ran++
			p.run(t, command)
		}
	}
	if info, err := os.Stat(filepath.Join(p.dir, "token")); err == nil && info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file has mode %v, expected that nobody else can read it", info.Mode())
	}
	if ran < 8 {
		t.Errorf("found only %d commands", ran)
	}
}

// commands returns the commands of a block. A line that ends in a backslash goes on in the next,
// and a line that begins with a blank continues the one before.
func commands(block string) []string {
	block = strings.ReplaceAll(block, "\\\n", " ")
	return strings.Split(strings.TrimSpace(regexp.MustCompile(`\n +`).ReplaceAllString(block, " ")), "\n")
}

// page runs the commands of a page.
type page struct {
	t     *testing.T
	dir   string            // holds the files that commands write
	ports map[string]string // the port in use for each port of the page
}

func newPage(t *testing.T) *page {
	p := &page{t: t, dir: t.TempDir(), ports: map[string]string{}}
	if err := os.Symlink(ckd, filepath.Join(p.dir, "ckd")); err != nil {
		t.Fatal(err)
	}
	return p
}

// writeAccess writes the access file that the page shows.
func (p *page) writeAccess(text string) {
	p.t.Helper()
	shown := regexp.MustCompile("(?s)Begin with `access.yaml`:\n\n```yaml\n(.*?)```").FindStringSubmatch(text)
	if shown == nil {
		p.t.Fatal("the page shows no access.yaml")
	}
	identities := strings.ReplaceAll(shown[1], "{file: token}", "{file: "+filepath.Join(p.dir, "token")+"}")
	if err := os.WriteFile(filepath.Join(p.dir, "access.yaml"), []byte(identities), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

var (
	ownFile = regexp.MustCompile(`( )(tls\.key|tls\.crt|access\.yaml|settled\.yaml|token)( |$)`)
	address = regexp.MustCompile(`(127\.0\.0\.1|localhost):(\d+)`)
)

func (p *page) run(t *testing.T, line string) {
	// Two passes are needed, because one match ends where the next begins.
	command := ownFile.ReplaceAllString(ownFile.ReplaceAllString(line, "${1}"+p.dir+"/$2$3"), "${1}"+p.dir+"/$2$3")
	words := strings.Fields(command)
	name := words[0]
	if words[0] == "ckd" && words[1] == "serve" {
		p.serve(words[2:])
		return
	}
	t.Run(name, func(t *testing.T) {
		switch name {
		case "python3":
			modules := []string{"grpc", "google.protobuf", "numpy"}
			if strings.Contains(line, "oip.py") {
				modules = append(modules, "grpc_tools.protoc")
			}
			command = python(t, modules...) + strings.TrimPrefix(command, name)
		case "kubectl":
			for _, word := range words {
				if _, err := os.Stat("../" + word); strings.Contains(word, "/") && err != nil {
					t.Error(err)
				}
			}
			return
		case "go", "ckd":
		default:
			if _, err := exec.LookPath(name); err != nil {
				testbed.Lacks(t, "%s is not installed", name)
			}
		}
		for _, a := range address.FindAllStringSubmatch(command, -1) {
			port, known := p.ports[a[2]]
			if !known {
				t.Fatalf("%s: nothing that the page starts listens on %s", line, a[0])
			}
			command = strings.ReplaceAll(command, a[0], a[1]+":"+port)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.Dir = ".."
		c.Env = append(os.Environ(), "PATH="+p.dir+":"+os.Getenv("PATH"))
		r := testbed.Run(t, c)
		if r.Code != 0 || strings.Contains(r.Stdout, `{"error"`) || strings.HasPrefix(r.Stdout, `{"code"`) {
			t.Errorf("%s: exit %d\n%s%s", line, r.Code, r.Stdout, r.Stderr)
		}
		wants := regexp.MustCompile(`(?i)retain|defer`)
		switch {
		case strings.Contains(line, ":decompose"):
			wants = regexp.MustCompile(`"c":\[.*"action":"ACTION_(RETAIN|DEFER)".*"passes":30.*"input_id":"ctg-1"`)
		case name == "curl" && strings.HasSuffix(line, "/fetal-health"):
			wants = regexp.MustCompile(`"classes":\["normal"`)
		case name != "curl" && !strings.Contains(line, "examples/"):
			return
		}
		if !wants.MatchString(r.Stdout) {
			t.Errorf("%s: expected %s, got\n%s", line, wants, r.Stdout)
		}
	})
}

// serve starts a daemon of the page on free ports.
func (p *page) serve(args []string) {
	p.t.Helper()
	ports := map[string]string{} // ports of the page, by flag
	var free []string
	for i := 0; i < len(args); i += 2 {
		flag, value := args[i], args[i+1]
		if a := address.FindStringSubmatch(value); a != nil {
			ports[flag], value = a[2], "127.0.0.1:0"
		} else if !filepath.IsAbs(value) {
			value = "../" + value
		} else if _, err := os.Stat(value); err != nil {
			testbed.Lacks(p.t, "a command before this one did not run: %v", err)
		}
		if flag != "--listen" && flag != "--admin" { // serveOn gives these free ports
			free = append(free, flag, value)
		}
	}
	d := serveOn(p.t, "127.0.0.1:0", free...)
	for flag, at := range map[string]string{"--listen": d.GRPC[0], "--http": strings.TrimPrefix(d.HTTP, "http://")} {
		if shown := ports[flag]; shown != "" {
			_, p.ports[shown], _ = strings.Cut(at, ":")
		}
	}
}
