package triage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

// TestHandler checks the paths, and that every answer keeps the browser from loading or sending
// elsewhere.
func TestHandler(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	d.page.assets = fstest.MapFS{"index.html": {Data: []byte("<p>")}, "sub/a.js": {Data: []byte("let a")}}
	for _, c := range []struct {
		method, path string
		code         int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/?model=m", 200, "text/html; charset=utf-8"},
		{"GET", "/triage/sub/a.js", 200, "text/javascript; charset=utf-8"},
		{"HEAD", "/triage/sub/a.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/triage/state", 200, "application/json"},
		{"GET", "/triage/state?model=m", 200, "application/json"},
		{"GET", "/triage/state?model=other", 200, "application/json"},
		{"HEAD", "/triage/state", 200, "application/json"},
		{"GET", "/triage/", 404, ""},
		{"GET", "/triage/index.html", 404, ""},
		{"GET", "/triage/sub", 404, ""},
		{"GET", "/triage/no.js", 404, ""},
		{"GET", "/triage/state/", 404, ""},
		{"GET", "/triage/..%2fhandler.go", 404, ""},
		{"GET", "/other", 404, ""},
		{"POST", "/", 405, ""},
		{"POST", "/triage/state", 405, ""},
		{"DELETE", "/triage/sub/a.js", 405, ""},
		{"OPTIONS", "/triage/state", 405, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			d.page.Handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			if w.Code != c.code || c.kind != "" && w.Header().Get("Content-Type") != c.kind {
				t.Errorf("%d, %q, expected %d, %q", w.Code, w.Header().Get("Content-Type"), c.code, c.kind)
			}
			for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Resource-Policy"} {
				if w.Header().Get(name) == "" {
					t.Errorf("no %s", name)
				}
			}
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Error(policy)
			}
			cached := "no-store"
			if strings.HasPrefix(c.kind, "text/") {
				cached = "no-cache"
			}
			if got := w.Header().Get("Cache-Control"); c.code == 200 && got != cached {
				t.Errorf("Cache-Control %q, expected %q", got, cached)
			}
			if len(w.Result().Cookies()) > 0 {
				t.Error("a cookie")
			}
		})
	}
}

// TestAssets checks that a file is sent once, and again only if it changed.
func TestAssets(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	for path, file := range map[string]string{"/": "index.html", "/triage/page.js": "page.js", "/triage/icon.svg": "icon.svg"} {
		data, err := embedded.ReadFile("assets/" + file)
		if err != nil {
			t.Fatal(err)
		}
		w := d.get(t, path)
		tag := w.Header().Get("ETag")
		if w.Code != http.StatusOK || w.Body.String() != string(data) || len(tag) < 10 {
			t.Errorf("%s: %d, %v", path, w.Code, w.Header())
		}
		for given, want := range map[string]int{tag: http.StatusNotModified, `"other"`: http.StatusOK} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("If-None-Match", given)
			w := httptest.NewRecorder()
			d.page.Handler().ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s if not %s: %d, expected %d", path, given, w.Code, want)
			}
		}
	}
}
