package csrf

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

// cross refuses requests of other sites' pages, to which a browser adds its user's credentials.
var cross http.CrossOriginProtection

// Check returns nil for a request of a program, or of a page that the daemon itself served. The
// error says what is wrong with any other request.
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

// isFetchedElsewhere reports whether a page of another origin has a browser fetch something. The
// page could not read the answer, but the request would have its effect. A link that somebody
// follows is not such a request.
func isFetchedElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate"
	}
	return false
}

// isRebound reports whether a request may come from a page whose name was made to mean this machine
// after it was loaded. Its browser then takes the daemon for the page's own origin. The Host header
// still has the page's name, where programs on this machine send an address or localhost. TLS has
// no certificate for such a name.
func isRebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.TLS != nil || r.Host == "" { // HTTP/1.0 may lack it; browsers always send it
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	return err != nil && !strings.EqualFold(host, "localhost")
}
