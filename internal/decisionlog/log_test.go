package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRecord returns a record as a daemon makes them.
func testRecord() *Record {
	return &Record{
		Time: 1772366400123456, Model: "fetal-health", ModelVersion: "7", PolicyHash: strings.Repeat("ab", 32),
		Decision: &policy.Decision{Action: policy.Defer, Score: policy.CBEC, Value: 0.0312345678, Threshold: 0.023, HasThreshold: true,
			Gate: policy.ByFallback, Class: 2, Reason: policy.AboveThreshold},
		Classes: []string{"normal", "suspect", "pathologic"}, Predicted: 0, Stratum: "deferred",
		Scores: testScores(), Risk: 0.0712345678, Passes: 30, Review: true, Propensity: 1, Share: 1,
		Trace: [16]byte{1, 2, 3},
	}
}

func testScores() *[decomp.NumScores]float64 {
	var scores [decomp.NumScores]float64
	for i := range scores {
		scores[i] = float64(i+1) / 64
	}
	return &scores
}

// open returns a log under one policy, whose writer works as fast as it can, and closes it at the end of the test.
func open(t testing.TB, o Options) *Log {
	t.Helper()
	o.watchEvery = 5 * time.Millisecond
	if o.flushEvery == 0 {
		o.flushEvery, o.lookEvery = time.Millisecond, 2*time.Millisecond
	}
	if o.closeEvery == 0 {
		o.closeEvery = 20 * time.Millisecond
	}
	o.Software = "test"
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l.SetPolicies(testPolicies(t))
	return l
}

func testPolicies(t testing.TB) []Policy {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "p.yaml", Data: []byte("models: [{name: m, classes: [a, b], critical: [b], primary: {threshold: 0.1}, fallback: {threshold: 0.1}}]")})
	if err != nil {
		t.Fatal(err)
	}
	return []Policy{PolicyOf(set.All()[0])}
}

// stop closes a log within a time.
func stop(t testing.TB, l *Log, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return l.Close(ctx)
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// lines returns the lines of a file.
func lines(t testing.TB, path string) (all []Line) {
	t.Helper()
	err := Each(path, func(l *Line) error {
		kept := *l
		kept.Text = bytes.Clone(l.Text)
		all = append(all, kept)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRecord checks every field of a line against what encoding/json reads.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.log")
	l := open(t, Options{Path: path, closeEvery: time.Hour})
	r := testRecord()
	r.ID, r.IDHash, r.Share, r.Settled = []byte("a\"\\\n\x01\xff é"), 0xab, 0.25, true
	r.Scores[decomp.CBEC] = math.NaN()
	r.Mean, r.C, r.Skewness = []float64{0.5, 1e-9, math.NaN()}, []float64{0, 1, 2}, []float64{3, 4, 5e22}
	l.Add(r)
	bare := testRecord()
	bare.Decision = &policy.Decision{Action: policy.Observe, Reason: policy.Observing, Class: -1, Value: math.NaN()}
	bare.Risk, bare.Propensity, bare.Trace, bare.Scores, bare.Review, bare.Time = math.NaN(), math.NaN(), [16]byte{}, nil, false, -1
	l.Add(bare)
	if err := stop(t, l, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	all := lines(t, path)
	if len(all) != 4 || all[0].Start == nil || all[3].Close == nil {
		t.Fatalf("got %d lines, want a start line, two records and a close line: %s", len(all), all[len(all)-1].Text)
	}
	const want = `{"number":1,"time":"2026-03-01T12:00:00.123456Z","id":"a\"\\\n\u0001� é","id_hash":"00000000000000ab","model":"fetal-health",` +
		`"model_version":"7","policy_hash":"abababababababababababababababababababababababababababababababab","action":"defer",` +
		`"reason":"above_threshold","gate":"fallback","score":"cbec","value":0.0312345678,"threshold":0.023,"deciding_class":"pathologic",` +
		`"predicted":"normal","stratum":"deferred","risk":0.0712345678,"scores":{"entropy":0.015625,"mi":0.03125,"maxprob":0.046875,"eu_var":0.0625,` +
		`"var_crit":0.078125,"eu_var_crit":0.09375,"ova_mi":0.109375,"c_crit_sum":0.125,"c_crit_max":0.140625,"p_critical":0.171875},` +
		`"passes":30,"settled":true,"review":true,` +
		`"propensity":1,"share":0.25,"trace_id":"01020300000000000000000000000000","mean":[0.5,1e-09,null],"c":[0,1,2],"skewness":[3,4,5e+22]}` + "\n"
	if got := string(all[1].Text); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	const wantBare = `{"number":2,"time":"1969-12-31T23:59:59.999999Z","model":"fetal-health","model_version":"7",` +
		`"policy_hash":"abababababababababababababababababababababababababababababababab","action":"observe","reason":"observing",` +
		`"predicted":"normal","stratum":"deferred","passes":30}` + "\n"
	if got := string(all[2].Text); got != wantBare {
		t.Errorf("got  %swant %s", got, wantBare)
	}
	if c := all[3].Close; c.From != 1 || c.To != 2 || c.Written != 2 || !c.End || c.After != "" {
		t.Errorf("the close line is %+v", c)
	}
}

// TestText compares the texts of lines with encoding/json.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		var got string
		if err := json.Unmarshal(appendText(nil, text), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); got != want && strings.Count(got, "\ufffd") < strings.Count(want, "\ufffd") {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	})
}

// TestMoved moves the file away between records, as logrotate does: no record is lost or twice.
func TestMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.log")
	l := open(t, Options{Path: path})
	const files, each = 5, 300
	var paths []string
	for i := range files {
		for range each {
			l.Add(testRecord())
			l.LeaveOut()
		}
		if i == files-1 {
			break
		}
		old := fmt.Sprintf("%s.%d", path, files-i)
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, old)
		l.Reopen()
		eventually(t, "the file is there again", func() bool { _, err := os.Stat(path); return err == nil })
	}
	if err := stop(t, l, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := l.Counts(); n != (Counts{Decisions: 2 * files * each, Written: files * each, LeftOut: files * each}) {
		t.Errorf("%+v", n)
	}
	wantWhole(t, append(paths, path), files*each)
}

// TestTruncated copies the file and cuts it, as logrotate does where it is told to.
func TestTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.log")
	l := open(t, Options{Path: path, closeEvery: time.Hour})
	for range 10 {
		l.Add(testRecord())
	}
	eventually(t, "all is written", func() bool { return l.Counts().Written == 10 })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+".1", text, 0o600), os.Truncate(path, 0)); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	eventually(t, "the file begins anew", func() bool { info, err := os.Stat(path); return err == nil && info.Size() > 0 })
	for range 10 {
		l.Add(testRecord())
	}
	if err := stop(t, l, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, []string{path + ".1", path}, 20)
}

// wantWhole expects files to have so many records, with nothing missing.
func wantWhole(t testing.TB, paths []string, records uint64) {
	t.Helper()
	r, err := Verify(paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Faults {
		t.Error(f)
	}
	if r.Records != records {
		t.Errorf("%d records, want %d", r.Records, records)
	}
}

// TestNobodyReads writes to a named pipe that nobody reads, and to a device that is always full: nothing waits, and all
// that is lost is counted.
func TestNobodyReads(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"pipe": pipe, "full": "/dev/full"} {
		t.Run(name, func(t *testing.T) {
			troubles := make(chan Trouble, 1000)
			l := open(t, Options{Path: path, buffer: 64 << 10, reportEvery: time.Millisecond, Report: func(r Trouble) { troubles <- r }})
			const all = 2000
			for range all {
				l.Add(testRecord())
			}
			for told := false; !told; { // the start line may fail before anything is lost
				r := <-troubles
				if told = r.Lost > 0 || r.Waiting > 0; r.Why == "" {
					t.Errorf("%+v is told", r)
				}
			}
			n := l.Counts()
			if n.Decisions != all || n.Written+n.Lost+n.Waiting != all || n.Lost == 0 {
				t.Errorf("%+v", n)
			}
			err := stop(t, l, 20*time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), "records are lost: ") {
				t.Errorf("got error %v", err)
			}
			if n := l.Counts(); n.Waiting != 0 || n.Written+n.Lost != all {
				t.Errorf("at the end %+v", n)
			}
		})
	}
}

// TestOpenFails expects a file that cannot be opened to be named.
func TestOpenFails(t *testing.T) {
	_, err := Open(Options{Path: filepath.Join(t.TempDir(), "none", "decisions.log")})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "decisions.log") {
		t.Errorf("got error %v", err)
	}
}

// TestRagged begins with a file whose last process was killed within a line.
func TestRagged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.log")
	first := open(t, Options{Path: path})
	first.Add(testRecord())
	if err := stop(t, first, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, `{"number":2,"time":"20`...), 0o600); err != nil {
		t.Fatal(err)
	}
	second := open(t, Options{Path: path})
	second.Add(testRecord())
	if err := stop(t, second, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, []string{path}, 2)
}

// disk is a file system in memory that fails, and takes its time, as it is told.
type disk struct {
	mu    sync.Mutex
	files []*memoryFile
	// fault returns how much of so many bytes is written, and the error.
	fault func(n int) (int, error)
	moved func() bool
}

type memoryFile struct {
	disk *disk
	data []byte
	cuts bool
}

func (d *disk) open() (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &memoryFile{disk: d, cuts: len(d.files)%2 == 0}
	d.files = append(d.files, f)
	return f, nil
}

func (f *memoryFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n, err := f.disk.fault(len(p))
	f.data = append(f.data, p[:n]...)
	return n, err
}

func (f *memoryFile) look() fate {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.moved() {
		return moved
	}
	return current
}

func (f *memoryFile) cutBack(n int) {
	if f.cuts {
		f.data = f.data[:len(f.data)-n]
	}
}

func (f *memoryFile) Sync() error  { return nil }
func (f *memoryFile) Close() error { return nil }
func (f *memoryFile) ragged() bool { return false }

// TestFaults has many goroutines decide while the disk fails at random and files are moved. At every moment and at the
// end decisions = written + left out + lost + waiting, and what is counted as written is in the files, once.
func TestFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		state := rapid.Uint64().Draw(rt, "seed")
		failing := rapid.Uint64Range(10, 90).Draw(rt, "percent of writes that fail")
		next := func(n uint64) uint64 { // under the disk's lock
			state = state*6364136223846793005 + 1442695040888963407
			return state >> 33 % n
		}
		healed := false
		d := &disk{
			fault: func(n int) (int, error) {
				if healed || next(100) >= failing {
					return n, nil
				}
				return int(next(uint64(n))), syscall.ENOSPC
			},
			moved: func() bool { return !healed && next(10) == 0 },
		}
		l := open(t, Options{open: d.open, buffer: 8 << 10, flushEvery: 50 * time.Microsecond, lookEvery: 1, closeEvery: 300 * time.Microsecond})
		const each = 60
		var deciders sync.WaitGroup
		for range 3 {
			deciders.Go(func() {
				for i := range each {
					time.Sleep(10 * time.Microsecond)
					if i%7 == 0 {
						l.LeaveOut()
					} else {
						l.Add(testRecord())
					}
				}
			})
		}
		for range 50 {
			if n := l.Counts(); n.Decisions != n.Written+n.LeftOut+n.Lost+n.Waiting {
				rt.Fatalf("%+v does not add up", n)
			}
		}
		deciders.Wait()
		d.mu.Lock()
		healed = true
		d.mu.Unlock()
		if err := stop(t, l, 20*time.Second); err != nil {
			rt.Fatal(err)
		}
		n := l.Counts()
		if n.Decisions != 3*each || n.Decisions != n.Written+n.LeftOut+n.Lost || n.Waiting != 0 {
			rt.Fatalf("at the end %+v", n)
		}
		var paths []string
		folder := t.TempDir()
		for i, f := range d.files {
			paths = append(paths, filepath.Join(folder, fmt.Sprint(len(d.files)-i)))
			if f.cuts && len(f.data) > 0 && f.data[len(f.data)-1] != '\n' {
				rt.Errorf("a file was left within a line: %q", f.data[max(0, len(f.data)-50):])
			}
			if err := os.WriteFile(paths[i], f.data, 0o600); err != nil {
				rt.Fatal(err)
			}
		}
		r, err := Verify(paths)
		if err != nil {
			rt.Fatal(err)
		}
		for _, f := range r.Faults {
			rt.Error(f)
		}
		if r.Records != n.Written || r.LeftOut != n.LeftOut || r.Lost != n.Lost {
			rt.Errorf("files have %+v, want %+v", r, n)
		}
	})
}

// TestHangs has the file hang for ever, first in a write and then in opening it: nothing waits for it.
func TestHangs(t *testing.T) {
	release := make(chan struct{})
	for name, opens := range map[string]func() (file, error){
		"write": (&disk{fault: func(n int) (int, error) { <-release; return n, nil }, moved: func() bool { return false }}).open,
		"open":  func() (file, error) { <-release; return nil, os.ErrClosed },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{open: opens, buffer: 8 << 10, openWithin: time.Millisecond})
			for range 500 {
				l.Add(testRecord())
			}
			if err := stop(t, l, 10*time.Millisecond); err == nil {
				t.Error("no error for what is lost")
			}
			if n := l.Counts(); n.Lost != 500 {
				t.Errorf("%+v", n)
			}
		})
	}
	close(release)
}

// race says that the race detector is on, under which pools forget.
var race bool

// TestAddAllocatesNothing checks that a decision costs no allocation.
func TestAddAllocatesNothing(t *testing.T) {
	if race {
		t.Skip("under the race detector pools forget")
	}
	l, err := Open(Options{Path: os.DevNull, flushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := testRecord()
	r.ID, r.Mean = []byte("exam"), []float64{0.1, 0.2, 0.7}
	if n := testing.AllocsPerRun(1000, func() { l.Add(r); l.LeaveOut() }); n != 0 {
		t.Errorf("%v allocations for a record", n)
	}
	if err := stop(t, l, 10*time.Second); err == nil {
		t.Error("nothing was said of records without a start line")
	}
}

// BenchmarkAdd measures a record, with the writer at work. Scores and risk have as many digits as real ones.
func BenchmarkAdd(b *testing.B) {
	for _, scores := range []bool{true, false} {
		b.Run(fmt.Sprintf("scores=%t", scores), func(b *testing.B) {
			l, err := Open(Options{Path: os.DevNull})
			if err != nil {
				b.Fatal(err)
			}
			l.SetPolicies(nil)
			r := testRecord()
			for i := range r.Scores {
				r.Scores[i] = math.Sqrt(float64(i+1)) / 10
			}
			r.Risk, r.Decision.Value = math.Sqrt(0.005), math.Sqrt(0.001)
			if !scores {
				r.Scores = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Add(r)
			}
			b.ReportMetric(float64(l.Counts().Lost)/float64(b.N), "lost/op")
			if err := l.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
