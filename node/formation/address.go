package formation

import (
	"errors"
	"net"
	"strings"
)

// withPort adds the default port to an address that names none.
func withPort(addr string) (string, error) {
	if addr == "" {
		return "", errors.New("empty")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		if strings.Count(addr, ":") == 1 {
			return "", err
		}
		host, port = strings.Trim(addr, "[]"), DefaultPort // a name, or an IPv6 address
	}
	if host == "" {
		return "", errors.New("no host")
	}
	if port == "" {
		port = DefaultPort
	}
	return net.JoinHostPort(host, port), nil
}
