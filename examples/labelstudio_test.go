package examples_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// labelTask is a task of Label Studio.
type labelTask struct {
	ID   int            `json:"id"`
	Data map[string]any `json:"data"`
	Meta map[string]any `json:"meta"`
}

// labelStudio stands in for the calls of Label Studio's API that the example makes, with its paths, tokens
// and answers.
type labelStudio struct {
	*httptest.Server
	mu    sync.Mutex
	tasks []labelTask // of the imports since the last taken
}

func newLabelStudio(t *testing.T) *labelStudio {
	t.Helper()
	s := &labelStudio{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/token/refresh", func(w http.ResponseWriter, r *http.Request) {
		var personal struct{ Refresh string }
		if err := json.NewDecoder(r.Body).Decode(&personal); err != nil || personal.Refresh != "head.body.seal" {
			http.Error(w, "no such token", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"access": "short"}`)
	})
	mux.HandleFunc("POST /api/projects/3/import", func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get("Authorization"); token != "Token legacy" && token != "Bearer short" {
			http.Error(w, `{"detail": "Invalid token."}`, http.StatusUnauthorized)
			return
		}
		var tasks []labelTask
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&tasks); err != nil || len(tasks) == 0 {
			http.Error(w, fmt.Sprint("no tasks: ", err), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tasks = append(s.tasks, tasks...)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"task_count": %d, "annotation_count": 0}`, len(tasks))
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// taken returns the tasks that were imported since the last call, numbered as Label Studio does.
func (s *labelStudio) taken() []labelTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := s.tasks
	s.tasks = nil
	for i := range tasks {
		tasks[i].ID = 101 + i
	}
	return tasks
}

// annotated returns an annotation as Label Studio's webhook and its export in JSON have it.
func annotated(label string, user any) map[string]any {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	return map[string]any{
		"id": 17, "was_cancelled": false, "ground_truth": false, "created_at": now, "updated_at": now, "lead_time": 37.13,
		"prediction": map[string]any{}, "result_count": 0, "task": 101, "completed_by": user,
		"result": []any{map[string]any{"value": map[string]any{"choices": []string{label}}, "id": "WArqkkifYE", "from_name": "class", "to_name": "image", "type": "choices"}},
	}
}

// webhook starts the example's server, and returns how to send it an event and what it has logged.
func webhook(t *testing.T, daemon string) (send func(action, secret string, annotation map[string]any, task labelTask) int, logged func() string) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "secret"), "a secret\n")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.CommandContext(t.Context(), python(t, "grpc", "google.protobuf", "numpy"), "labelstudio/labelstudio.py", "serve",
		"--addr", daemon, "--secret-file", filepath.Join(dir, "secret"), "--listen", "127.0.0.1:0")
	c.Stderr = log
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // the end of the test's context has killed it
	logged = func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%q %v\n%s", line, err, logged())
	}
	return func(action, secret string, annotation map[string]any, task labelTask) int {
		t.Helper()
		body, err := json.Marshal(map[string]any{"action": action, "annotation": annotation, "task": task, "project": map[string]any{"id": 3}})
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Ckd-Secret", secret)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusUnauthorized && len(said) > 0 {
			t.Errorf("the webhook answers %q, expected nothing: it could tell what the model said", said)
		}
		return answer.StatusCode
	}, logged
}

// readings returns what a ledger has of each receipt, as source, truth and whether its reader saw the model's answer.
func readings(t *testing.T, d *testbed.Daemon) map[string][]string {
	t.Helper()
	r := run(t, ckd, "outcomes", "export", "--addr", d.GRPC[0])
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	found := map[string][]string{}
	for line := range strings.Lines(r.Stdout) {
		var decision struct {
			Receipt  string
			Readings []struct {
				Source, Truth string
				SawModel      bool `json:"saw_model"`
			}
		}
		if err := json.Unmarshal([]byte(line), &decision); err != nil {
			t.Fatal(err)
		}
		for _, reading := range decision.Readings {
			found[decision.Receipt] = append(found[decision.Receipt], fmt.Sprint(reading.Source, " ", reading.Truth, " ", reading.SawModel))
		}
	}
	return found
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// table returns the rows of a CSV file by the names of their columns.
func table(t *testing.T, text string) (rows []map[string]string) {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(records) == 0 {
		t.Fatalf("no CSV: %v\n%s", err, text)
	}
	for _, record := range records[1:] {
		row := map[string]string{}
		for i, name := range records[0] {
			row[name] = record[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// TestLabelStudio sends decided inputs to a stand-in of Label Studio as tasks, and what its webhook and its
// exports say back to the ledger. It cannot show that Label Studio takes the tasks.
func TestLabelStudio(t *testing.T) {
	t.Parallel()
	interpreter := python(t, "grpc", "google.protobuf", "numpy")
	d, studio, dir := serveLedger(t, "--recent-inputs", "100"), newLabelStudio(t), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	decided := script(t, `
import base64, csv
recorded = numpy.load(sys.argv[2])[:, :40]
with ckd.Client(sys.argv[1]) as client:
    results = client.decompose("fetal-health", recorded, [f"eye/{i}" for i in range(40)], receipts=ckd.REVIEWED)
with open(sys.argv[3], "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["case", "receipt", "priority", "predicted", "action", "score", "value", "reason"])
    for i, r in enumerate(results):
        table.writerow([r.id, base64.b64encode(r.receipt).decode(), i % 7, r.predicted, r.action, r.score, r.value, r.reason])
`, d.GRPC[0], recording, in("results.csv"))
	if decided.Code != 0 {
		t.Fatalf("exit %d\n%s", decided.Code, decided.Stderr)
	}
	text, err := os.ReadFile(in("results.csv"))
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]map[string]string{} // by id
	for _, row := range table(t, string(text)) {
		results[row["case"]] = row
	}
	_, listed, _ := d.Get("/triage/reviews.csv?state=open&source=label-studio-7")
	writeFile(t, in("to-review.csv"), listed)
	writeFile(t, in("legacy"), "legacy\n")
	writeFile(t, in("personal"), "head.body.seal\n")
	example := func(command string, args ...string) testbed.Result {
		return run(t, interpreter, append([]string{"labelstudio/labelstudio.py", command}, args...)...)
	}
	tasks := func(args ...string) testbed.Result {
		return example("tasks", append(args, "--case-url", "https://pacs.example/{id}")...)
	}
	post := func(token string, args ...string) []labelTask {
		t.Helper()
		r := tasks(append(args, "--studio", studio.URL+"/", "--project", "3", "--token-file", in(token))...)
		if r.Code != 0 {
			t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
		}
		return studio.taken()
	}

	// What a reader gets has the link and a name, and nothing of the decision.
	sent := post("legacy", in("to-review.csv"), "--sent", in("sent"))
	if len(sent) != 40 {
		t.Fatalf("%d tasks of 40 inputs to review", len(sent))
	}
	byID := map[string]labelTask{}
	names := make([]string, len(sent))
	for i, task := range sent {
		id, _ := task.Meta["id"].(string)
		names[i], _ = task.Data["case"].(string)
		byID[id] = task
		want := labelTask{task.ID, map[string]any{"url": "https://pacs.example/" + strings.Replace(id, "/", "%2F", 1), "case": names[i]}, map[string]any{"id": id, "receipt": results[id]["receipt"]}}
		if diff := cmp.Diff(want, task); diff != "" || len(names[i]) != 12 || strings.Trim(names[i], "0123456789abcdef") != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if len(byID) != 40 || !slices.IsSorted(names) {
		t.Errorf("%d inputs, in the order %q: expected that of the names, which is random", len(byID), names)
	}
	if again := post("legacy", in("to-review.csv"), "--sent", in("sent")); len(again) != 0 {
		t.Errorf("%d tasks are sent again", len(again))
	}
	if r := tasks(in("results.csv"), "--studio", studio.URL, "--project", "3", "--token-file", in("results.csv")); r.Code != 1 || !strings.Contains(r.Stderr, "401") {
		t.Errorf("a token that is refused: exit %d, %s", r.Code, r.Stderr)
	}
	var priorities []string
	sick := post("personal", in("results.csv"), "--by-priority")
	for _, task := range sick {
		priorities = append(priorities, results[task.Meta["id"].(string)]["priority"])
		if !slices.Equal(slices.Sorted(maps.Keys(task.Data)), []string{"case", "url"}) || len(task.Meta) != 3 || task.Meta["saw_model"] != true {
			t.Errorf("by priority: %+v", task)
		}
	}
	if slices.Reverse(priorities); len(sick) != 40 || !slices.IsSorted(priorities) {
		t.Errorf("%d tasks, by rising priority %q", len(sick), priorities)
	}

	// What comes back.
	pick := func(action, predicted string) labelTask {
		t.Helper()
		for _, id := range slices.Sorted(maps.Keys(results)) {
			if results[id]["action"] == action && results[id]["predicted"] == predicted {
				return byID[id]
			}
		}
		t.Fatalf("no input %s, predicted %s", action, predicted)
		return labelTask{}
	}
	deferred, audit := pick("defer", "pathologic"), pick("retain", "normal")
	seen := audit
	seen.Meta = maps.Clone(audit.Meta)
	seen.Meta["saw_model"] = true
	forged := deferred
	forged.Meta = map[string]any{"id": "x", "receipt": "AAAA"}
	skipped := annotated("normal", 7)
	skipped["was_cancelled"], skipped["result"] = true, []any{}
	const secret, created, updated = "a secret", "ANNOTATION_CREATED", "ANNOTATION_UPDATED"
	send, logged := webhook(t, d.GRPC[0])
	for _, c := range []struct {
		name, action, secret string
		annotation           map[string]any
		task                 labelTask
		code                 int
		kept                 string // the last reading of the task's receipt
		log                  string
	}{
		{"another secret", created, "secret", annotated("suspect", 7), deferred, 401, "", ""},
		{"deferred", created, secret, annotated("suspect", 7), deferred, 200, "label-studio-7 suspect false", ""},
		{"corrected", updated, secret, annotated("normal", 7), deferred, 200, "label-studio-7 normal false", ""},
		{"skipped", created, secret, skipped, audit, 200, "", ""},
		{"another event", "TASKS_CREATED", secret, annotated("normal", 7), audit, 200, "", ""},
		{"no class", created, secret, annotated("banana", 7), audit, 200, "", `found "banana"`},
		{"forged", created, secret, annotated("normal", 7), forged, 200, "", "not a receipt"},
		{"not of ckd", created, secret, annotated("normal", 7), labelTask{ID: 101}, 200, "", "no outcome"},
		{"nobody", created, secret, annotated("normal", nil), audit, 200, "", "annotator None"},
		{"by priority", created, secret, annotated("normal", 6), seen, 200, "label-studio-6 normal true", ""},
		{"audit", created, secret, annotated("pathologic", 7), audit, 200, "label-studio-7 pathologic false", ""},
	} {
		before := logged()
		if code := send(c.action, c.secret, c.annotation, c.task); code != c.code {
			t.Errorf("%s: answer %d, expected %d", c.name, code, c.code)
		}
		receipt, _ := c.task.Meta["receipt"].(string)
		kept := readings(t, d)[receipt]
		if last := append([]string{""}, kept...)[len(kept)]; c.kept != "" && last != c.kept {
			t.Errorf("%s: the ledger has %q, expected %q last", c.name, kept, c.kept)
		}
		fresh := strings.TrimPrefix(logged(), before)
		if refused := strings.Contains(fresh, fmt.Sprintf("task %d: ", c.task.ID)); refused != (c.log != "") || !strings.Contains(fresh, c.log) {
			t.Errorf("%s: the log has %q, expected %q", c.name, fresh, c.log)
		}
	}
	got, want := readings(t, d), map[string][]string{
		deferred.Meta["receipt"].(string): {"label-studio-7 suspect false", "label-studio-7 normal false"},
		audit.Meta["receipt"].(string):    {"label-studio-6 normal true", "label-studio-7 pathologic false"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	figures := run(t, ckd, "outcomes", "figures", "--addr", d.GRPC[0], "--format", "json")
	if corrected := strings.Contains(strings.ReplaceAll(figures.Stdout, " ", ""), `"corrected":"1"`); figures.Code != 0 || !corrected {
		t.Errorf("exit %d, no correction in the figures\n%s", figures.Code, figures.Stderr)
	}
	send, logged = webhook(t, serve(t).GRPC[0])
	if code := send(created, secret, annotated("normal", 7), deferred); code != http.StatusServiceUnavailable || !strings.Contains(logged(), "task ") {
		t.Errorf("a daemon that takes no outcomes now: answer %d, expected 503\n%s", code, logged())
	}

	// What is to be read again is not to be told from the rest.
	missing := run(t, ckd, "outcomes", "missing", "--addr", d.GRPC[0], "--receipts", in("results.csv"), "--format", "csv")
	header, rest, _ := strings.Cut(missing.Stdout, "\n")
	var wanted string
	for line := range strings.Lines(rest) {
		if strings.Contains(line, "second_read") {
			wanted += line
		}
	}
	if strings.Count(wanted, "\n") != 1 {
		t.Fatalf("another reading of one input is wanted, found %q in\n%s%s", wanted, missing.Stdout, missing.Stderr)
	}
	writeFile(t, in("wanted.csv"), header+"\n"+wanted)
	again := []string{in("wanted.csv"), "--receipts", in("results.csv"), "--csv", in("again.csv")}
	if r := tasks(again...); r.Code != 1 || !strings.Contains(r.Stderr, "1 of 1 inputs were read before") {
		t.Errorf("only what is read again: exit %d, %s", r.Code, r.Stderr)
	}
	if r := tasks(append(again, "--reader", "7")...); r.Code != 0 || r.Stderr != "0 tasks\n" {
		t.Errorf("for who has read it: exit %d, %s", r.Code, r.Stderr)
	}
	if r := tasks(append([]string{in("to-review.csv")}, again...)...); r.Code != 0 || r.Stderr != "40 tasks\n" {
		t.Errorf("among others: exit %d, %s", r.Code, r.Stderr)
	}

	// By file: Label Studio's CSV has what the task showed, its JSON the whole task.
	made, err := os.ReadFile(in("again.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var exported strings.Builder
	rows := csv.NewWriter(&exported)
	_ = rows.Write([]string{"annotation_id", "annotator", "case", "class", "created_at", "id", "lead_time", "updated_at", "url"})
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for i, row := range table(t, string(made)) {
		if len(row) != 2 {
			t.Fatalf("a file to import has the columns %v, expected url and case", row)
		}
		_ = rows.Write([]string{fmt.Sprint(i), "8", row["case"], "Normal", now, fmt.Sprint(i), "3.5", now, row["url"]})
	}
	rows.Flush()
	writeFile(t, in("export.csv"), exported.String())
	annotation := annotated("Normal", map[string]any{"id": 9, "email": "ann@example.org"})
	whole, err := json.Marshal([]any{map[string]any{"id": 101, "data": sick[0].Data, "meta": sick[0].Meta, "annotations": []any{annotation, skipped}}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, in("export.json"), string(whole))
	for _, c := range []struct {
		file          string
		counted, open int
		kept          string
	}{
		{"export.csv", 40, 0, "label-studio-8 normal false"},
		{"export.json", 1, 1, "label-studio-9 normal true"},
	} {
		r := example("outcomes", in(c.file), "--receipts", in("results.csv"), "--class", "Normal=normal")
		if r.Code != 0 {
			t.Fatalf("%s: exit %d\n%s", c.file, r.Code, r.Stderr)
		}
		writeFile(t, in("outcomes.csv"), r.Stdout)
		if r := run(t, ckd, "outcomes", "send", "--addr", d.GRPC[0], "--file", in("outcomes.csv")); r.Code != 0 || strings.Count(r.Stdout, "\n") != c.counted ||
			c.open > 0 && !strings.Contains(r.Stderr, fmt.Sprintf("%d rows have no truth yet", c.open)) {
			t.Errorf("%s: exit %d, expected %d sent and %d open\n%s%s", c.file, r.Code, c.counted, c.open, r.Stdout, r.Stderr)
		}
		if kept := readings(t, d)[sick[0].Meta["receipt"].(string)]; !slices.Contains(kept, c.kept) {
			t.Errorf("%s: the ledger has %q, expected %q among them", c.file, kept, c.kept)
		}
	}
	writeFile(t, in("mail.csv"), strings.ReplaceAll(exported.String(), ",8,", ",ann@example.org,"))
	if r := example("outcomes", in("mail.csv"), "--receipts", in("results.csv")); r.Code != 1 || !strings.Contains(r.Stderr, "expected Label Studio's number") {
		t.Errorf("a person's address as a source: exit %d\n%s", r.Code, r.Stderr)
	}
}
