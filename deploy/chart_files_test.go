package deploy

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "refresh the chart's copies")

// TestChartFiles compares the files of the chart with their originals. `go generate ./deploy`
// copies them anew.
func TestChartFiles(t *testing.T) {
	const folder = "helm/ckd/files"
	copies := map[string][]byte{}
	for to, pattern := range map[string]string{
		"example-policy.yaml": "policy/fetal-health.yaml",
		"grafana":             "grafana/*.json",
		"rules":               "prometheus/rules/*.yaml",
	} {
		originals, err := filepath.Glob(pattern)
		if err != nil || len(originals) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(originals), err)
		}
		for _, original := range originals {
			path := filepath.Join(folder, to)
			if filepath.Ext(to) == "" {
				path = filepath.Join(path, filepath.Base(original))
			}
			if copies[path], err = os.ReadFile(original); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *update {
		refresh(t, folder, copies)
	}
	for path, want := range copies {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not a copy of its original (error %v): run go generate ./deploy", path, err)
		}
	}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && copies[path] == nil {
			t.Errorf("%s has no original: run go generate ./deploy", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestChartHasNoLinks fails on symbolic links: Flux drops them, Rancher and helm-git refuse them.
func TestChartHasNoLinks(t *testing.T) {
	files := 0
	err := filepath.WalkDir("helm/ckd", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			t.Errorf("%s is %v, expected a regular file", path, d.Type())
		}
		files++
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, error %v", files, err)
	}
}

// refresh replaces the folder by the copies.
func refresh(t *testing.T, folder string, copies map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for path, text := range copies {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
