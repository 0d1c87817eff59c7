package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// hostsMax bounds the hosts of one lab.
const hostsMax = 200

// labs numbers the labs, so that those of parallel tests have different names.
var labs atomic.Uint32

// A Lab is a network of hosts. Its methods, and those methods of its hosts that return no error,
// must be called by the test's goroutine: they fail the test on errors.
type Lab struct {
	// Here is the host that runs the test itself.
	Here *Host

	t      testing.TB
	number int

	// mu guards the fields below, and addr of the hosts. It is held while iproute2 runs.
	mu        sync.Mutex
	hosts     []*Host       // Here first
	blocked   map[pair]bool // directions in which no packet arrives
	processes []*Process
}

// pair is a direction: packets from one host to another.
type pair struct{ from, to *Host }

// New creates a network with the given number of hosts besides Here. It is removed at the end of
// the test.
func New(t testing.TB, hosts int) *Lab {
	t.Helper()
	if !Inside() {
		t.Fatal("BUG: TestMain does not call netlab.Main")
	}
	if hosts >= hostsMax {
		t.Fatalf("%d hosts; at most %d", hosts, hostsMax)
	}
	l := &Lab{t: t, number: int(labs.Add(1)), blocked: make(map[pair]bool)}
	ns, err := ownNamespace()
	if err != nil {
		t.Fatal(err)
	}
	l.Here = &Host{lab: l, index: 0, device: fmt.Sprintf("lab%d", l.number), link: l.linkAddress(0), addr: l.address(0, 0), ns: ns}
	l.hosts = []*Host{l.Here}
	t.Cleanup(l.close)
	l.must(l.Here.ip(
		fmt.Sprintf("link add %s address %s type bridge", l.Here.device, l.Here.link),
		fmt.Sprintf("address add %s/16 dev %s", l.Here.addr, l.Here.device),
		fmt.Sprintf("link set %s up", l.Here.device),
	))
	for range hosts {
		l.must(l.addHost())
	}
	return l
}

// Hosts returns the hosts except Here.
func (l *Lab) Hosts() []*Host { return l.hosts[1:] }

// address returns the address of a host after place renumberings.
func (l *Lab) address(place, index int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(l.number), byte(place), byte(1 + index)})
}

func (l *Lab) linkAddress(index int) string {
	return fmt.Sprintf("02:4c:41:42:%02x:%02x", byte(l.number), index)
}

// unusedLink returns a link address that no host has.
func (l *Lab) unusedLink() string { return l.linkAddress(0xff) }

// addHost creates a host, connects it to the bridge, and adds neighbor entries for it to all
// others.
func (l *Lab) addHost() error {
	i := len(l.hosts)
	h := &Host{lab: l, index: i, device: "eth0", link: l.linkAddress(i), addr: l.address(0, i)}
	var err error
	if h.ns, err = newNamespace(l.Here.ns); err != nil {
		return err
	}
	port := fmt.Sprintf("lab%dp%d", l.number, i)
	err = l.Here.Do(func() error {
		return ip([]*os.File{h.ns},
			fmt.Sprintf("link add %s type veth peer name %s address %s netns /proc/self/fd/3", port, h.device, h.link),
			fmt.Sprintf("link set %s master %s up", port, l.Here.device))
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = append(l.hosts, h)
	if err := h.ip("link set lo up", "link set eth0 up", fmt.Sprintf("address add %s/16 dev eth0", h.addr)); err != nil {
		return err
	}
	for _, other := range l.hosts[:i] {
		if err := l.addNeighbor(other, h); err != nil {
			return err
		}
		if err := l.addNeighbor(h, other); err != nil {
			return err
		}
	}
	return nil
}

// addNeighbor adds a neighbor entry for to at from, with a wrong link address if that direction is
// cut.
func (l *Lab) addNeighbor(from, to *Host) error { return from.ip(l.entry(pair{from, to})) }

func (l *Lab) entry(p pair) string {
	link := p.to.link
	if l.blocked[p] {
		link = l.unusedLink()
	}
	return fmt.Sprintf("neighbour replace %s lladdr %s dev %s nud permanent", p.to.addr, link, p.from.device)
}

// Renumber changes the addresses of hosts, all at once. Connections to and from the old addresses
// stop working.
func (l *Lab) Renumber(hosts ...*Host) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range hosts {
		old := h.addr
		h.addr = l.address(int(old.As4()[2])+1, h.index)
		l.must(h.ip(
			fmt.Sprintf("address del %s/16 dev %s", old, h.device),
			fmt.Sprintf("address add %s/16 dev %s", h.addr, h.device)))
	}
	for _, from := range l.hosts {
		// Removing a host's last address also removes its entries.
		entries := []string{"neighbour flush dev " + from.device + " nud permanent"}
		for _, to := range l.hosts {
			if from != to {
				entries = append(entries, l.entry(pair{from, to}))
			}
		}
		l.must(from.ip(entries...))
	}
}

func (l *Lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// close kills all processes and removes the network.
func (l *Lab) close() {
	for _, p := range l.processes {
		p.Kill()
	}
	var commands []string
	for _, h := range l.hosts[1:] {
		commands = append(commands, fmt.Sprintf("link del lab%dp%d", l.number, h.index))
	}
	if err := l.Here.ip(append(commands, "link del "+l.Here.device)...); err != nil {
		l.t.Errorf("remove the network: %v", err)
	}
	for _, h := range l.hosts {
		if err := h.ns.Close(); err != nil {
			l.t.Errorf("close the network of %v: %v", h, err)
		}
	}
}
