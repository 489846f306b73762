package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlaces checks that only events that can change the contents of files cause a wake: a watched
// directory may be busy, such as one for temporary files.
func TestPlaces(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	below := func(path string) string { return filepath.Join(top, path) }
	for _, dir := range []string{"map/..1", "else", "real/deep"} {
		if err := os.MkdirAll(below(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"map/..data":         "..1",
		"map/policy.yaml":    "..data/policy.yaml",
		"alias":              "real",
		"real/deep/far.yaml": "../../else/./far//",
		"real/deep/lost.yml": below("none/lost"),
		"round":              "round",
	} {
		if err := os.Symlink(target, below(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"map/..1/policy.yaml", "else/far", "alone.conf"} {
		if err := os.WriteFile(below(file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	tests := []struct {
		path string
		want map[string][]string // directories below top, and names
	}{
		{"alone.conf", map[string][]string{"": {"alone.conf"}}},
		{"missing/policy.yaml", map[string][]string{"": {"missing"}}},
		{"round", map[string][]string{"": {"round"}}},
		{"map", map[string][]string{"": {"map"}, "map": {"*", "..data", "..1", "policy.yaml"}, "map/..1": {"*", "policy.yaml"}}},
		{"map/policy.yaml", map[string][]string{"map": {"policy.yaml", "..data"}, "map/..1": {"policy.yaml"}}},
		{"alias/deep", map[string][]string{
			"": {"alias", "none"}, "real": {"deep"}, "real/deep": {"*", "..data", "far.yaml", "lost.yml"}, "else": {"far"},
		}},
	}
	for _, test := range tests {
		want := NewPlaces(nil)
		for dir, names := range test.want {
			for _, name := range names {
				want.add(below(dir), name)
			}
		}
		if got := yamlsOf(below(test.path)); !got.equal(want) {
			t.Errorf("%s: places\n%v\nwant\n%v", test.path, got.names, want.names)
		}
	}

	p := yamlsOf(below("map"), below("alone.conf"))
	for file, want := range map[string]bool{
		"map":                  true, // the directory itself
		"map/..data":           true,
		"map/new.yaml":         true,
		"map/new.yml":          true,
		"map/..1/policy.yaml":  true,
		"alone.conf":           true,
		"map/..data_tmp":       false,
		"map/..2":              false,
		"map/.policy.yaml.swp": false,
		"map/policy.yaml~":     false,
		"map/4913":             false,
		"alone.conf.bak":       false,
		"other.yaml":           false,
		"else/far.yaml":        false,
	} {
		if got := p.concern(below(file)); got != want {
			t.Errorf("%s: concern %v, want %v", file, got, want)
		}
	}
	// The system's watcher names the file like this.
	if !PlacesOf("/none-such.yaml").concern("//none-such.yaml") {
		t.Error("a file in the root directory does not concern")
	}
}

// yamlsOf returns the places of paths as policies need them: of files, or of directories with their
// *.yaml and *.yml files.
func yamlsOf(paths ...string) *Places {
	isYAML := func(name string) bool {
		return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
	}
	p := NewPlaces(isYAML)
	for _, path := range paths {
		p.Trace(path)
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue
		}
		p.Trace(filepath.Join(path, "..data"))
		entries, err := os.ReadDir(path)
		if err != nil {
			panic(err)
		}
		for _, entry := range entries {
			if isYAML(entry.Name()) {
				p.Trace(filepath.Join(path, entry.Name()))
			}
		}
	}
	return p
}
