package decisionlog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// written returns the lines of three files that one process has written one after another: a start line, records 1 to
// 10, a close line; the same up to 20; and up to 30. Odd numbers are left out.
func written(t testing.TB) (files [3][]string) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "log")
	l := open(t, Options{Path: path, closeEvery: time.Hour})
	for i := range files {
		for range 5 {
			l.LeaveOut()
			l.Add(testRecord())
		}
		want := uint64(5 * (i + 1))
		eventually(t, "all is written", func() bool { return l.Counts().Written == want })
		name := path
		if i < 2 {
			name = fmt.Sprintf("%s.%d", path, i)
			if err := os.Rename(path, name); err != nil {
				t.Fatal(err)
			}
			l.Reopen()
			eventually(t, "the file is left", func() bool { _, err := os.Stat(path); return err == nil })
		} else if err := stop(t, l, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = slices.Collect(strings.Lines(string(text)))
		if len(files[i]) != 7 {
			t.Fatalf("file %d has %d lines: %q", i, len(files[i]), files[i])
		}
	}
	return files
}

// TestVerify changes files in one way after another, and expects the place and the words.
func TestVerify(t *testing.T) {
	files := written(t)
	for name, test := range map[string]struct {
		change func(f *[3][]string)
		faults []string // patterns, in order
		notes  []string
	}{
		"nothing": {change: func(*[3][]string) {}},
		"a byte": {
			change: func(f *[3][]string) { f[1][3] = strings.Replace(f[1][3], "defer", "retai", 1) },
			faults: []string{`^b:7: lines 1 to 7 are not as they were written: their SHA-256 is .*, expected .*$`},
		},
		"a byte that ends JSON": {
			change: func(f *[3][]string) { f[1][3] = strings.Replace(f[1][3], "{", "x", 1) },
			faults: []string{`^b:4: not a line of a decision log: not JSON`, `^b:7: lines 1 to 7 are not`, `^b:7: numbers 11 to 20: 5 records were written, found 4$`},
		},
		"a line": {
			change: func(f *[3][]string) { f[0] = slices.Delete(f[0], 2, 3) },
			faults: []string{`^a:6: lines 1 to 6 are not`, `^a:6: numbers 1 to 10: 5 records were written, found 4$`},
		},
		"a line twice": {
			change: func(f *[3][]string) { f[0] = slices.Insert(f[0], 2, f[0][2]) },
			faults: []string{`^a:4: number 4: it stands after number 4`, `^a:8: lines 1 to 8 are not`, `^a:8: numbers 1 to 10: 5 records were written, found 6$`},
		},
		"lines in another order": {
			change: func(f *[3][]string) { f[0][1], f[0][2] = f[0][2], f[0][1] },
			faults: []string{`^a:3: number 2: it stands after number 4`, `^a:7: lines 1 to 7 are not`},
		},
		"a file": {
			change: func(f *[3][]string) { f[1] = nil },
			faults: []string{`^c:1: numbers 11 to 20 are missing: a file is missing after a, or its end$`},
		},
		"the first file": {
			change: func(f *[3][]string) { f[0] = nil },
			notes:  []string{`^b:1: begins at number 11: earlier files were not given$`},
		},
		"the last file": {
			change: func(f *[3][]string) { f[2] = nil },
			notes:  []string{`^b:7: the end of process .* is missing`},
		},
		"a file twice": {
			change: func(f *[3][]string) { f[1] = f[0] },
			faults: []string{`^b:1: begins at number 1, expected 11: is a file given twice\?$|^b:1: begins at number 1: expected 11: is a file given twice\?$`},
		},
		"a close line": {
			change: func(f *[3][]string) { f[0] = f[0][:6] },
			faults: []string{`^b:1: numbers 1 to 10 are missing: a file is missing after a, or its end$`},
		},
		"counts of a close line": {
			change: func(f *[3][]string) {
				f[1][6] = strings.Replace(f[1][6], `"left_out":5,"lost":0`, `"left_out":4,"lost":1`, 1)
			},
			faults: []string{`^b:7: lines 1 to 7 are not`},
		},
		"the policy": {
			change: func(f *[3][]string) { f[0][0] = strings.Replace(f[0][0], "threshold: 0.1", "threshold: 0.2", 1) },
			faults: []string{`^a:1: the policy of model m is not the one of its hash`, `^a:7: lines 1 to 7 are not`},
		},
		"the start line": {
			change: func(f *[3][]string) { f[0] = f[0][1:] },
			faults: []string{`^a:1: no start line stands before it: the beginning of the file is missing$`},
			notes:  []string{`^b:1: begins at number 11`},
		},
		"torn": {
			change: func(f *[3][]string) { f[2] = append(f[2][:3:3], f[2][3][:20]) },
			notes:  []string{`^c:3: 2 records have no close line yet`, `^c:4: the last line has no end`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := files
			for i := range changed {
				changed[i] = slices.Clone(changed[i])
			}
			test.change(&changed)
			folder := t.TempDir()
			var paths []string
			for i, lines := range changed {
				if lines == nil {
					continue
				}
				path := filepath.Join(folder, string(rune('a'+i)))
				if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
					t.Fatal(err)
				}
				paths = append(paths, path)
			}
			r, err := Verify(paths)
			if err != nil {
				t.Fatal(err)
			}
			match := func(kind string, got []Finding, want []string) {
				var texts []string
				for _, f := range got {
					f.File = filepath.Base(f.File)
					texts = append(texts, strings.ReplaceAll(f.String(), folder+string(filepath.Separator), ""))
				}
				for i, pattern := range want {
					if len(texts) != len(want) || !regexp.MustCompile(pattern).MatchString(texts[i]) {
						t.Fatalf("%s: got %q, want %q", kind, texts, want)
					}
				}
				if len(want) == 0 && len(texts) > 0 {
					t.Errorf("%s: got %q, want none", kind, texts)
				}
			}
			match("faults", r.Faults, test.faults)
			match("notes", r.Notes, test.notes)
			slices.Reverse(paths)
			again, err := Verify(paths)
			if err != nil || len(again.Faults) != len(r.Faults) && name != "a file twice" {
				t.Errorf("in another order %+v (error %v)", again, err)
			}
		})
	}
}

// TestCompressed reads a file that was compressed, and one that was cut off.
func TestCompressed(t *testing.T) {
	files := written(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(strings.Join(files[0], ""))); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, []string{path}, 5)
	if err := os.WriteFile(path, b.Bytes()[:b.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify([]string{path}); err == nil || !strings.Contains(err.Error(), "cannot be read on") {
		t.Errorf("got error %v for a file that was cut off", err)
	}
}

// verifyText verifies one file.
func verifyText(text []byte) (*Report, error) {
	return verify([]string{"log"}, func(name string, take func(*Line) error) error { return eachLine(name, bytes.NewReader(text), take) })
}

// TestEveryByte changes one byte anywhere in what a close line covers, and expects a fault.
func TestEveryByte(t *testing.T) {
	files := written(t)
	text := []byte(strings.Join(files[0], ""))
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(text)-2).Draw(t, "at") // without the last newline, the line is torn
		with := rapid.Byte().Filter(func(b byte) bool { return b != text[at] }).Draw(t, "with")
		changed := bytes.Clone(text)
		changed[at] = with
		r, err := verifyText(changed)
		if err == nil && len(r.Faults) == 0 {
			t.Errorf("nothing was found: %+v", r)
		}
	})
}

// FuzzEach reads what is no log: it must neither panic nor go on for ever, and must count every line.
func FuzzEach(f *testing.F) {
	const text = `{"start":{"process":"14ad","time":"2026-11-28T00:54:10.978553Z","why":"file","software":"1","from":1,"policies":[{"model":"m","hash":"1","text":"models:"}]}}
{"number":2,"time":"2026-11-28T00:54:13.154911Z","model":"m","scores":{"mi":0.05}}
{"close":{"process":"14ad","from":1,"to":2,"written":1,"left_out":1,"lost":0,"end":true,"sha256":"524a"}}
`
	f.Add([]byte(text))
	f.Add([]byte(text[:len(text)-10]))
	f.Add([]byte(strings.ReplaceAll(text, `"number":2`, `"number":-2`)))
	f.Add([]byte(strings.ReplaceAll(text, `"file"`, `"policies"`) + text))
	f.Add([]byte("{\"start\":{}}\n{\"close\":{\"from\":9,\"to\":1}}\n\n\x00{\"number\":1}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := 0
		err := eachLine("log", bytes.NewReader(data), func(l *Line) error {
			lines++
			if _, err := l.Decision(); err != nil && l.Fault == "" && l.Record == 0 {
				t.Errorf("line %d: %v", l.Number, err)
			}
			return nil
		})
		want := bytes.Count(data, []byte{'\n'})
		if len(data) > 0 && data[len(data)-1] != '\n' {
			want++
		}
		if err != nil || lines != want {
			t.Errorf("%d lines, want %d (error %v)", lines, want, err)
		}
		if _, err := verifyText(data); err != nil {
			t.Error(err)
		}
	})
}
