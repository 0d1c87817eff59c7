// Package testport gives tests addresses for servers that are to listen there later, or that stop and listen
// there again. A port that the kernel chose is no such address: between two uses it may become that of any outgoing
// connection on the machine. These ports are not among those that the kernel gives out.
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
	// lowest is above the ports that servers have by default.
	lowest = 12000
	// kernelDefault is where the kernel's own ports begin if it does not say.
	kernelDefault = 32768
	triesMax      = 1000
)

var given struct {
	sync.Mutex
	ports map[int]bool
}

// New returns an address on loopback that nobody listens on, and that it has not returned before.
func New() (string, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	var last error
	for range triesMax {
		port := lowest + rand.IntN(kernels()-lowest)
		if given.ports[port] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		given.ports[port] = true
		return addr, l.Close()
	}
	return "", fmt.Errorf("no free port between %d and %d in %d tries: %w", lowest, kernels(), triesMax, last)
}

// kernels returns the first port that the kernel gives out.
func kernels() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	first := 0
	if err == nil {
		_, err = fmt.Sscan(string(b), &first)
	}
	if err != nil || first < lowest+triesMax {
		return kernelDefault
	}
	return first
}
