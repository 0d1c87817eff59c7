package simnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Config configures a Network. The zero value of an option is its default.
type Config struct {
	// Rand decides about delays and losses. It is used by the network only. Required.
	Rand *rand.Rand
	// Events receives each event, with the network's lock held. It must not block, and must not
	// call the network. May be nil.
	Events func(Event)
	// Now returns the true time since the start, whichever process calls it. The default is the time
	// since New by the caller's clock.
	Now func() time.Duration
	// Link is the link between hosts that SetLink has not changed. Default LAN.
	Link Link
	// Loopback is the link from a host to itself. Default 10 to 20 µs.
	Loopback Link
	// Window bounds the bytes of one direction of a connection that are in flight or not read.
	// Default 256 KiB.
	Window int
	// Backlog bounds the connections that a listener has not accepted. Default 128.
	Backlog int
	// PacketQueue bounds the packets that a socket holds. Default 1024.
	PacketQueue int
	// ConnectTimeout bounds a dial whose context has no earlier end. Default 127 s.
	ConnectTimeout time.Duration
	// UserTimeout is how long sent data may stay unacknowledged. Default 15 s.
	UserTimeout time.Duration
	// KeepAlive is the time between probes of a connection whose other end is gone. After nine it
	// fails. Default 15 s.
	KeepAlive time.Duration
	// RetransmitTimeout is the time to the first retransmission, which doubles with each. Default
	// 200 ms.
	RetransmitTimeout time.Duration
}

// LAN is the default link.
var LAN = Link{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond, Bandwidth: 1_250_000_000}

func (c Config) withDefaults() Config {
	start := time.Now()
	if c.Now == nil {
		c.Now = func() time.Duration { return time.Since(start) }
	}
	if c.Link == (Link{}) {
		c.Link = LAN
	}
	if c.Loopback == (Link{}) {
		c.Loopback = Link{Delay: 10 * time.Microsecond, Jitter: 10 * time.Microsecond}
	}
	setDefault(&c.Window, 256<<10)
	setDefault(&c.Backlog, 128)
	setDefault(&c.PacketQueue, 1024)
	setDefault(&c.ConnectTimeout, 127*time.Second)
	setDefault(&c.UserTimeout, 15*time.Second)
	setDefault(&c.KeepAlive, 15*time.Second)
	setDefault(&c.RetransmitTimeout, 200*time.Millisecond)
	return c
}

func setDefault[T int | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Network connects hosts. It is safe for concurrent use.
type Network struct {
	cfg  Config
	wake chan struct{} // holds a value when an event is due before the scheduler would look, and at the end
	done chan struct{}

	// mu guards everything below, and the state of all hosts, links and connections (SN2).
	mu      sync.Mutex
	queue   eventQueue
	asleep  time.Duration // the scheduler looks again at this time; zero while it runs
	hosts   []*Host       // by number
	byIP    map[netip.Addr]*Host
	conns   uint64 // the number of the last connection
	buffers bufferPool
	closed  bool
}

// New returns a network without hosts and starts its scheduler.
func New(cfg Config) *Network {
	n := &Network{
		cfg: cfg.withDefaults(), byIP: make(map[netip.Addr]*Host),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go n.run()
	return n
}

// Close ends the scheduler: nothing is delivered afterwards.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	signal(n.wake)
	<-n.done
}

// Host returns the host with that IP address. The first call creates it. It panics if the text is
// no IP address.
func (n *Network) Host(ip string) *Host {
	addr := netip.MustParseAddr(ip).Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.byIP[addr]
	if h == nil {
		if len(n.hosts) >= int(noHost) {
			panic(fmt.Sprintf("more than %d hosts", len(n.hosts)))
		}
		h = &Host{net: n, ip: addr, number: uint16(len(n.hosts)), up: true, conns: make(map[uint64]*Conn), ports: make(map[uint16]int)}
		n.byIP[addr], n.hosts = h, append(n.hosts, h)
	}
	return h
}

// run is the scheduler.
func (n *Network) run() {
	defer close(n.done)
	for {
		wait, ok := n.deliverDue()
		if !ok {
			return
		}
		timer := time.NewTimer(wait) // to reset one would make the runtime look through all timers
		select {
		case <-timer.C:
		case <-n.wake:
			timer.Stop()
		}
	}
}

// deliverDue runs the events that are due. It returns the time to the next one, which may be never, or
// false at the end.
func (n *Network) deliverDue() (wait time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asleep = 0
	for {
		if n.closed {
			return 0, false
		}
		next, ok := n.queue.first()
		if !ok {
			n.asleep = never
			return never, true
		}
		now := n.cfg.Now()
		if next > now {
			n.asleep = next
			return next - now, true
		}
		n.fireLocked(n.queue.pop(), now)
	}
}

func (n *Network) fireLocked(e event, now time.Duration) {
	switch e.kind {
	case segmentDue:
		if e.half.due == e.seq {
			e.half.due = 0
			e.half.arriveLocked(now)
		}
	case retransmitDue:
		if e.half.retry == e.seq {
			e.half.retry = 0
			e.half.retransmitLocked(now)
		}
	case packetDue:
		n.packetLocked(e.packet)
	case callDue:
		e.call(now)
	}
}

// scheduleLocked adds an event and returns its number.
func (n *Network) scheduleLocked(e event) uint64 {
	seq := n.queue.push(e)
	if e.at < n.asleep {
		n.asleep = e.at
		signal(n.wake)
	}
	return seq
}

// afterLocked calls f with the lock held, after a time.
func (n *Network) afterLocked(d time.Duration, f func(now time.Duration)) {
	n.scheduleLocked(event{at: n.cfg.Now() + d, kind: callDue, call: f})
}

// signal wakes the goroutine that waits for the channel, or the next one that will. It never waits
// itself.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
