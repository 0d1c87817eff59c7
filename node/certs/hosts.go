package certs

import (
	"net"
	"os"
	"slices"

	"github.com/steledb/stele/security/pki"
)

// HostsOf returns the names and addresses that can be in a certificate of this host.
func HostsOf(names ...string) (hosts []string) {
	for _, h := range names {
		ip := net.ParseIP(h)
		if h == "" || pki.CheckHost(h) != nil || ip != nil && ip.IsUnspecified() || slices.Contains(hosts, h) {
			continue
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// WithLocal adds the names by which clients on this host reach it, as far as the certificate has space. Name is that of the node.
func WithLocal(hosts []string, name string) []string {
	all := slices.Clone(hosts)
	host, _ := os.Hostname()
	for _, h := range HostsOf("localhost", "127.0.0.1", "::1", name, host) {
		if len(all) < pki.HostsMax && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}
