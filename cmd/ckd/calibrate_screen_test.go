package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/internal/record"
)

// drawn returns the flags to calibrate on drawn passes of k classes with names of width letters, of which
// the last third is critical. A model of no skill gives every class the same chance.
func drawn(t *testing.T, k, inputs, width int, skill float64, more ...string) []string {
	t.Helper()
	const passes = 5
	random := rand.New(rand.NewPCG(3, uint64(k)))
	array := &record.Array{Shape: []int{passes, inputs, k}, Float32: make([]float32, passes*inputs*k)}
	labels := make([]int64, inputs)
	for i := range inputs {
		labels[i] = int64(random.IntN(k))
		hard := random.ExpFloat64() // inputs differ in how well they are told
		logits := make([]float64, k)
		for c := range logits {
			logits[c] = random.NormFloat64() * hard
		}
		logits[labels[i]] += skill
		for s := range passes {
			row, sum := array.Float32[(s*inputs+i)*k:][:k], 0.0
			for c := range row {
				e := math.Exp(logits[c] + 0.5*hard*random.NormFloat64())
				row[c], sum = float32(e), sum+e
			}
			for c := range row {
				row[c] = float32(float64(row[c]) / sum)
			}
		}
	}
	var names, critical []string
	for c := range k {
		names = append(names, fmt.Sprintf("%0*d", width, c))
		if c >= k-max(k/3, 1) {
			critical = append(critical, names[c])
		}
	}
	return append([]string{"calibrate", "--passes", writeArray(t, "passes.npy", array), "--labels", handLabels(t, labels...),
		"--classes", strings.Join(names, ","), "--critical", strings.Join(critical, ",")}, more...)
}

// TestCalibrateScreens expects what a calibration says first to fit on one screen, whatever there is to
// say, and to begin with the misses or with the reason for which there is no policy.
func TestCalibrateScreens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k, inputs, width int
		skill            float64
		flags            []string
		says             string
		code             int
	}{
		{2, 600, 8, 3, []string{"--coverage", "0.8"}, "With ", exitOK},
		{3, 600, 60, 3, []string{"--reviews-per-1000", "200", "--scope", "predicted-safe", "--guard", "0.02"}, "With ", exitOK},
		{3, 600, 8, 3, []string{"--cost-ratio", "20", "--scope", "predicted-safe"}, "With ", exitOK},
		{3, 1500, 60, 1.5, []string{"--max-critical-miss", "0.1"}, "With ", exitOK},
		{3, 900, 60, 3, []string{"--max-critical-miss", "0.25"}, "No policy is needed: ", exitUncertified},
		{26, 900, 60, 5, []string{"--coverage", "0.7"}, "With ", exitOK},
		{1000, 100, 60, 12, []string{"--coverage", "0.7"}, "", -1},
		{3, 300, 60, 3, []string{"--max-critical-miss", "0.001"}, "No policy: ", exitUncertified},
		{3, 300, 8, 14, []string{"--coverage", "0.8"}, "This recording cannot support a policy: ", exitUncertified},
		{3, 300, 8, 14, []string{"--coverage", "0.8", "--force"}, "This recording cannot support a policy: ", exitOK},
	} {
		t.Run(fmt.Sprint(c.k, c.flags), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), strings.Repeat("policy", 20)+".yaml")
			out, stderr, code := runCommand(t, drawn(t, c.k, c.inputs, c.width, c.skill, append(c.flags, "--out", path)...)...)
			if code != c.code && c.code >= 0 || !strings.Contains("\n"+out, "\n"+c.says) {
				t.Errorf("exit code %d, expected %d: %s\n%s", code, c.code, stderr, out)
			}
			if lines, columns := strings.Count(out, "\n"), text.LongestLineLen(out); lines > 40 || columns > 100 || lines < 8 {
				t.Errorf("%d lines of %d columns, expected at most 40 of 100:\n%s", lines, columns, out)
			}
			_, err := os.Stat(path)
			if written := err == nil; written != (code == exitOK) {
				t.Errorf("exit code %d, and the policy is written: %v", code, written)
			}
			if strings.Contains(out, "cannot support") && code == exitOK {
				if p := readPolicy(t, path); p.Calibration.Unsupported == "" {
					t.Error("the policy does not say that it was forced")
				}
			}
			for _, identifier := range []string{"critical_", "c_crit", "called_safe", "p_critical", "gate never"} {
				if strings.Contains(out, identifier) {
					t.Errorf("the screen says %q:\n%s", identifier, out)
				}
			}
		})
	}
}

// TestCalibrateSheet expects the parts of the page to sign, and that it prints on two sides of paper.
func TestCalibrateSheet(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	printable := err == nil
	for _, k := range []int{3, 26} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "policy.yaml")
			page := runOK(t, drawn(t, k, 900, 60, 3+float64(k)/13, "--coverage", "0.7", "--format", "html", "--out", path)...)
			p := readPolicy(t, path)
			for _, part := range []string{"this policy misses", "without review", p.Hash, p.Calibration.Recording.PassesSHA256, p.Calibration.Recording.LabelsSHA256,
				"What is promised", "Who looks at what", "When it alarms", "<svg", ">chosen<", "Labels to read again", "Date and signature", "Owner of the risk",
				"Critical classes", "Missed of each critical class", "of inputs are critical", "Model and version", "Valid until", "[ ] each is acted on"} {
				if !strings.Contains(page, part) {
					t.Errorf("the page has no %q", part)
				}
			}
			if !printable {
				t.Skip("no chromium here: the page was not printed")
			}
			file, pdf := filepath.Join(folder, "page.html"), filepath.Join(folder, "page.pdf")
			if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
				t.Fatal(err)
			}
			printing := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+folder,
				"--no-pdf-header-footer", "--print-to-pdf="+pdf, "file://"+file)
			if said, err := printing.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			printed, err := os.ReadFile(pdf)
			if err != nil {
				t.Fatal(err)
			}
			pages := bytes.Count(printed, []byte("/Type /Page")) - bytes.Count(printed, []byte("/Type /Pages"))
			if pages < 1 || pages > 2 {
				t.Errorf("%d pages, expected at most 2", pages)
			}
		})
	}
	_, stderr, code := runCommand(t, calibrating("ensemble", "--coverage", "0.8", "--format", "html")...)
	if code != exitUsage || !strings.Contains(stderr, "--out") {
		t.Errorf("without --out: exit code %d, %s", code, stderr)
	}
}
