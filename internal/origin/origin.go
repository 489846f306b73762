package origin

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/httperror"
)

// A browser sends with a request of any page whatever lets its user in.
var cross http.CrossOriginProtection

// Check is nil for a request of a program, or of a page that the daemon itself
// served. The error says what is wrong with another.
func Check(r *http.Request) error {
	if isRebound(r) {
		return errors.New("the Host is " + strconv.Quote(httperror.Clip(r.Host)) +
			", expected an IP address or localhost: a page may not call this machine by a name of its own")
	}
	if cross.Check(r) != nil || isFetchedElsewhere(r) {
		return errors.New("a page of another origin may not call here: there is no CORS")
	}
	return nil
}

// isFetchedElsewhere reports whether a page of another origin has a browser fetch
// something: it could not read it, but it would have it done. A link that somebody
// follows is no such request.
func isFetchedElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate"
	}
	return false
}

// isRebound reports whether a request may come from a page whose name was made to mean this machine after it was loaded.
// To its browser the daemon is then the page's own origin. The page's name is still in the Host header, where programs
// of this machine have an address or localhost. TLS has no certificate for such a name.
func isRebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.TLS != nil || r.Host == "" { // HTTP/1.0 may have none; browsers always do
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	return err != nil && !strings.EqualFold(host, "localhost")
}
