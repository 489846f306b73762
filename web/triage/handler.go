package triage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

//go:embed assets
var embedded embed.FS

// headers go with every answer: the page loads nothing from elsewhere, sends nothing elsewhere, and
// no other page may frame it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
		"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
	"X-Content-Type-Options": "nosniff",
	"Referrer-Policy":        "no-referrer",
	"Cache-Control":          "no-store",
	// No other site may load anything from here, because browsers send Basic credentials along.
	"Cross-Origin-Resource-Policy": "same-origin",
}

// Handler returns the handler of the page. All but one path are for GET and HEAD:
//
//   - / is the page, /triage/NAME its other files.
//   - /triage/state?model=NAME is a State as JSON; without a model, of the first; with since=AT, the time of
//     a State that the sender has, of the history only what is new.
//   - /triage/reviews?model=NAME is a ReviewList as JSON, of all models without a name; with since=VERSION,
//     204 if it has not changed. Where the sender is not known, source=NAME says who reads. /triage/reviews.csv is the same as a file, of one state with state=STATE.
//   - POST /triage/outcome enters an Entry, and answers with a ckd.v1.OutcomeAnswer.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { p.serveAsset(w, r, "index.html") })
	mux.HandleFunc("GET /triage/state", p.serveState)
	mux.HandleFunc("GET /triage/reviews", p.serveReviews)
	mux.HandleFunc("GET /triage/reviews.csv", p.serveReviewFile)
	mux.HandleFunc("POST /triage/outcome", p.serveEntry)
	mux.HandleFunc("GET /review", func(w http.ResponseWriter, r *http.Request) { p.serveAsset(w, r, "index.html") })
	mux.HandleFunc("GET /triage/{name...}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if name == "index.html" { // served at / only
			name = ""
		}
		p.serveAsset(w, r, name)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		mux.ServeHTTP(w, r)
	})
}

func (p *Page) serveState(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	since, _ := time.Parse(time.RFC3339Nano, query.Get("since")) // none, or no time, asks for the whole history
	writeJSON(w, http.StatusOK, p.state(r, query.Get("model"), since))
}

// serveAsset serves a file. Browsers revalidate it each time, so that they never mix files of two
// versions.
func (p *Page) serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	data, err := fs.ReadFile(p.assets, name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
