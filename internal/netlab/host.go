package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Host is a network namespace with an interface on its lab's bridge.
type Host struct {
	lab    *Lab
	index  int // in lab.hosts
	device string
	link   string   // link address
	ns     *os.File // the namespace, which exists while this is open

	addr netip.Addr // guarded by lab.mu
}

// Addr returns the host's address.
func (h *Host) Addr() netip.Addr {
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	return h.addr
}

// Port returns the host's address with a port, in the form that Dial accepts.
func (h *Host) Port(port uint16) string {
	return netip.AddrPortFrom(h.Addr(), port).String()
}

func (h *Host) String() string { return h.Addr().String() }

// Do calls f on a thread in the host's network. Sockets that f opens, and processes that it starts,
// permanently belong to that network.
func (h *Host) Do(f func() error) error {
	done := make(chan error, 1)
	// In its own goroutine, so that a thread that cannot return to its namespace ends with it.
	go func() {
		runtime.LockOSThread()
		err := enter(h.ns)
		if err == nil {
			err = f()
		}
		if back := enter(h.lab.Here.ns); back == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Dial connects from the host to a numeric address.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := h.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// DialTCP is Dial for TCP, in the form that package rpc requires.
func (h *Host) DialTCP(ctx context.Context, address string) (net.Conn, error) {
	return h.Dial(ctx, "tcp", address)
}

// Listen listens on a port of the host.
func (h *Host) Listen(port uint16) (net.Listener, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", h.Port(port))
		return err
	})
	return l, err
}

// ip runs commands of iproute2 in the host's network.
func (h *Host) ip(commands ...string) error {
	return h.Do(func() error { return ip(nil, commands...) })
}

func enter(ns *os.File) error {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// ownNamespace opens the network namespace of the calling thread.
func ownNamespace() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// newNamespace creates a network namespace.
func newNamespace(back *os.File) (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{nil, fmt.Errorf("create network namespace: %w", err)}
			return
		}
		ns, err := ownNamespace()
		if enter(back) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{ns, err}
	}()
	r := <-done
	return r.ns, r.err
}
