package monitor

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/steledb/stele/node/advertise"
)

// hosts returns the host names that clients may use on a plain HTTP port, besides addresses and localhost.
func (sv *Service) hosts() []string {
	machine, _ := os.Hostname()
	names := []string{machine, sv.Name, advertise.Host(sv.HTTP), advertise.Host(sv.Advertise), sv.Advertise}
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

// checkHost rejects requests for other hosts. A web page in a browser on this host could resolve its own name to loopback, and would read what
// is served there without TLS; it cannot choose the Host header.
func checkHost(h http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(r.Host, names) {
			http.Error(w, fmt.Sprintf("this is not %.200q: ask by an address, localhost or the host's name", r.Host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// knownHost reports whether a Host header names this host. HTTP/1.0 requests may lack it; browsers do not use HTTP/1.0.
func knownHost(header string, names []string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "" || net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}
