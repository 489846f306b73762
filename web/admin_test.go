package web

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/internal/auth"
)

// TestAdminOfReaders checks that whoever has no right admin reaches the list to review and what it takes,
// and nothing else of the triage page; and that pages of other sites enter nothing.
func TestAdminOfReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "identities:\n"
	for name, rights := range map[string]string{"reader": "recent: true, outcomes: true", "owner": "admin: true"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+"-0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
		text += "  - {name: " + name + ", tokens: [{file: " + name + "}], models: ['*'], " + rights + "}\n"
	}
	file := filepath.Join(dir, "access.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := auth.Open(file, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	admin := Admin(AdminOptions{Registry: prometheus.NewRegistry(), Page: page, Access: access, Log: zap.NewNop()})
	ask := func(who, method, path string, headers ...string) int {
		r := httptest.NewRequest(method, path, nil)
		if who != "" {
			r.SetBasicAuth("anybody", who+"-0123456789abcdef")
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, r)
		return w.Code
	}
	for path, reader := range map[string]int{
		"GET /": http.StatusForbidden, "GET /triage/state": http.StatusForbidden,
		"GET /review": http.StatusOK, "GET /triage/reviews": http.StatusOK, "GET /triage/reviews.csv": http.StatusOK,
		"GET /triage/page.js": http.StatusOK, "POST /triage/outcome": http.StatusOK,
	} {
		method, path, _ := strings.Cut(path, " ")
		for who, want := range map[string]int{"": http.StatusUnauthorized, "reader": reader} {
			if got := ask(who, method, path); got != want {
				t.Errorf("%s %s of %q: %d, expected %d", method, path, who, got, want)
			}
		}
	}
	if got := ask("owner", "GET", "/triage/state"); got != http.StatusOK {
		t.Errorf("the page of whoever has the right admin: %d", got)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if got := ask("reader", "POST", "/triage/outcome", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "cors"); got != http.StatusForbidden {
			t.Errorf("an outcome from a page %s: %d", site, got)
		}
	}
}
