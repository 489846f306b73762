package integration_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks checks that every link of a page to a file, picture or heading of the project leads
// somewhere, and that so does every page of docs/ that code, rules, dashboards and messages name.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	named := regexp.MustCompile(`\bdocs/([\w-]+\.md(?:#[\w-]*\w)?)`)
	pages := 0
	for path, text := range projectFiles(t) {
		if filepath.Ext(path) == ".md" {
			pages++
			for _, match := range link.FindAllStringSubmatch(withoutCode(text), -1) {
				if !strings.Contains(match[1], "://") && !strings.HasPrefix(match[1], "mailto:") {
					followLink(t, path, filepath.Dir(path), match[1])
				}
			}
		}
		if path != filepath.Join("..", "CHANGELOG.md") {
			for _, match := range named.FindAllStringSubmatch(text, -1) {
				followLink(t, path, filepath.Join("..", "docs"), match[1])
			}
		}
	}
	if pages < 20 {
		t.Errorf("found only %d pages", pages)
	}
}

// followLink checks that a link, relative to a folder, leads to a file and to a heading of it.
func followLink(t *testing.T, path, folder, link string) {
	t.Helper()
	to, heading, _ := strings.Cut(link, "#")
	target := path
	if to != "" {
		target = filepath.Join(folder, to)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s: the link to %s leads nowhere", path, link)
	} else if heading != "" && filepath.Ext(target) == ".md" && !hasHeading(t, target, heading) {
		t.Errorf("%s: the link to %s: there is no such heading", path, link)
	}
}

// projectFiles returns the texts of the project's files that git tracks or would.
func projectFiles(t *testing.T) map[string]string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	names, err := list.Output()
	if err != nil {
		t.Skip("not in a clone of git, which lists the project's files:", err)
	}
	texts := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || strings.Contains(name, "testdata/") || bytes.IndexByte(text[:min(len(text), 1<<10)], 0) >= 0 {
			continue // removed, not ours, or binary
		}
		texts[filepath.Join("..", name)] = string(text)
	}
	return texts
}

// Bounds of what a person is asked to read, in words.
const (
	mostWords       = 45_000 // in all pages but the changelog and the benchmarks
	mostWordsReadme = 900
	mostWordsOfPage = 2500 // each page of docs/
	mostPages       = 18
)

// TestPagesAreShort holds the bounds.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	words, pages := 0, 0
	for path, text := range projectFiles(t) {
		n := len(strings.Fields(text))
		switch folder, name := filepath.Split(path); {
		case filepath.Ext(name) != ".md" || name == "CHANGELOG.md" || name == "BENCHMARKS.md":
			continue
		case path == filepath.Join("..", "README.md") && n > mostWordsReadme:
			t.Errorf("%s has %d words, expected at most %d", path, n, mostWordsReadme)
		case strings.HasPrefix(folder, filepath.Join("..", "docs")):
			pages++
			if n >= mostWordsOfPage {
				t.Errorf("%s has %d words, expected under %d", path, n, mostWordsOfPage)
			}
		}
		words += n
	}
	if words > mostWords {
		t.Errorf("%d words of Markdown, expected at most %d", words, mostWords)
	}
	if pages > mostPages {
		t.Errorf("%d pages in docs/, expected at most %d", pages, mostPages)
	}
}

// withoutCode returns a page without its code, in blocks or lines.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

// hasHeading reports whether a page has a heading that GitHub gives this anchor.
func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), "")
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(code, -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}
