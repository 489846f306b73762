package gateway

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/server"
)

// TestDocs checks that the requests of docs/http.md are answered, except the stream, whose lines
// another program makes.
func TestDocs(t *testing.T) {
	h := newHarness(t, server.DefaultLimits(), Options{})
	text, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, m := range regexp.MustCompile(`(?s)\ncurl (?:--json (?:'([^']*)'|@(\S+)) )?http://127\.0\.0\.1:8591(\S+)\n`).FindAllStringSubmatch(string(text), -1) {
		ran++
		method, body := http.MethodGet, m[1]
		if m[2] != "" {
			file, err := os.ReadFile("../../" + m[2])
			if err != nil {
				t.Fatal(err)
			}
			body = string(file)
		}
		if body != "" {
			method = http.MethodPost
		}
		if response, text := h.do(t, method, m[3], strings.NewReader(body)); response.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s %s", method, m[3], response.Status, text)
		}
	}
	if ran != 3 {
		t.Errorf("%d requests were found", ran)
	}
	if want := fmt.Sprintf("%d times `max-message-bytes`", BodyFactor); !strings.Contains(string(text), want) {
		t.Errorf("the docs do not say: %s", want)
	}
	_, answer := h.do(t, http.MethodGet, "/v1/models/nobody", io.NopCloser(strings.NewReader("")))
	example := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(text))
	if example == nil || strings.Join(strings.Fields(example[1]), "") != strings.Join(strings.Fields(answer), "") {
		t.Errorf("the docs' error is not the answer: %s", answer)
	}
}
