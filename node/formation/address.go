package formation

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"
)

// WithPort adds the default port to an address without one.
func WithPort(addr string) (string, error) {
	if addr == "" {
		return "", errors.New("empty address")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		if strings.Count(addr, ":") == 1 {
			return "", err
		}
		host, port = strings.Trim(addr, "[]"), DefaultPort // a name or an IPv6 address
	}
	if host == "" {
		return "", errors.New("no host")
	}
	if port == "" {
		port = DefaultPort
	}
	return net.JoinHostPort(host, port), nil
}

// resolve returns all addresses of the names, each once. A name that cannot be resolved is returned
// unchanged, and so counts as an address that does not answer.
func resolve(ctx context.Context, addrs []string) []string {
	var all []string
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || net.ParseIP(host) != nil {
			all = append(all, addr)
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		cancel()
		if err != nil || len(ips) == 1 {
			all = append(all, addr)
			continue
		}
		for _, ip := range ips {
			all = append(all, net.JoinHostPort(ip, port))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// resolveTimeout bounds the resolution of one name.
const resolveTimeout = 2 * time.Second
