package advertise

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Address returns the host:port to advertise for a listener. Listen is the listener's address, as
// host:port with the actual port. Advertise is the operator's choice, host or host:port, or empty.
// If it is empty, the result has the listener's host. If the listener is bound to all addresses
// (0.0.0.0, ::), it has an interface's address: preferably a private one, then a public one, then
// loopback.
func Address(listen, advertise string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("parse listen address: %w", err)
	}
	if advertise != "" {
		return advertised(advertise, port)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return net.JoinHostPort(host, port), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find an address to advertise: %w", err)
	}
	best := choose(addrs, net.ParseIP(host) != nil && !strings.Contains(host, ":"))
	if best == nil {
		return "", errors.New("find an address to advertise: no interface has one; set --advertise")
	}
	return net.JoinHostPort(best.String(), port), nil
}

// advertised adds the port that the operator omitted.
func advertised(advertise, port string) (string, error) {
	host, p, err := net.SplitHostPort(advertise)
	if err != nil {
		host, p = strings.Trim(advertise, "[]"), port
		if net.ParseIP(host) == nil && strings.Contains(host, ":") {
			return "", fmt.Errorf("parse advertise address %q: %w", advertise, err)
		}
	}
	ip := net.ParseIP(host)
	if host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("address to advertise %q: other hosts cannot reach it", advertise)
	}
	if p == "" || p == "0" {
		p = port
	}
	return net.JoinHostPort(host, p), nil
}

// choose returns the address that other hosts most likely reach; nil if there is none.
func choose(addrs []net.Addr, only4 bool) net.IP {
	rank := func(ip net.IP) int {
		n := 0
		switch {
		case ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || only4 && ip.To4() == nil:
			return 0
		case ip.IsLoopback():
			n = 1
		case !ip.IsPrivate():
			n = 3
		default:
			n = 5
		}
		if ip.To4() != nil {
			n++
		}
		return n
	}
	var best net.IP
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if ok && rank(n.IP) > 0 && (best == nil || rank(n.IP) > rank(best)) {
			best = n.IP
		}
	}
	return best
}

// Host returns the host of host or host:port.
func Host(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
