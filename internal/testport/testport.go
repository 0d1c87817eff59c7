// Package testport provides loopback addresses for test servers that listen later, or that stop and
// listen again. A port chosen by the kernel is not suitable: between two uses the kernel may assign
// it to an outgoing connection. These ports are outside the kernel's ephemeral range.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	// portMin is above the default ports of servers.
	portMin = 12000
	// kernelDefault is the start of the ephemeral range if it cannot be read.
	kernelDefault = 32768
	triesMax      = 1000
)

var used struct {
	sync.Mutex
	ports map[int]bool
}

// New returns an unused address on loopback that it has not returned before.
func New() (string, error) {
	used.Lock()
	defer used.Unlock()
	if used.ports == nil {
		used.ports = map[int]bool{}
	}
	var last error
	for range triesMax {
		port := portMin + rand.IntN(ephemeralStart()-portMin)
		if used.ports[port] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		used.ports[port] = true
		return addr, l.Close()
	}
	return "", fmt.Errorf("no free port between %d and %d in %d tries: %w", portMin, ephemeralStart(), triesMax, last)
}

// ephemeralStart returns the first port of the kernel's ephemeral range.
func ephemeralStart() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	first := 0
	if err == nil {
		_, err = fmt.Sscan(string(b), &first)
	}
	if err != nil || first < portMin+triesMax {
		return kernelDefault
	}
	return first
}
