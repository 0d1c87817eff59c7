package raftmeta

import (
	"errors"
	"net"
	"sync"
	"time"
)

// mesh is a network in memory between servers identified by their ids. Its links have a direction.
// Data sent over a cut link waits, as TCP would retransmit it, and arrives when the link is
// restored if the connection still exists.
type mesh struct {
	mu struct {
		sync.Mutex
		at    map[string]*meshStreams
		cut   map[[2]string]bool
		delay map[[2]string]time.Duration
		// mended is closed and replaced when a link is restored.
		mended chan struct{}
	}
}

func newMesh() *mesh {
	m := &mesh{}
	m.mu.at = map[string]*meshStreams{}
	m.mu.cut = map[[2]string]bool{}
	m.mu.delay = map[[2]string]time.Duration{}
	m.mu.mended = make(chan struct{})
	return m
}

// set cuts or restores the link from one server to another.
func (m *mesh) set(from, to string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.cut[[2]string{from, to}] = cut
	close(m.mu.mended)
	m.mu.mended = make(chan struct{})
}

// both cuts or restores the links between two servers.
func (m *mesh) both(a, b string, cut bool) {
	m.set(a, b, cut)
	m.set(b, a, cut)
}

// slow sets the delay of data from one server to another.
func (m *mesh) slow(from, to string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.delay[[2]string{from, to}] = d
}

// healAll restores every link.
func (m *mesh) healAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.mu.cut)
	clear(m.mu.delay)
	close(m.mu.mended)
	m.mu.mended = make(chan struct{})
}

func (m *mesh) link(from, to string) (cut bool, delay time.Duration, mended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := [2]string{from, to}
	return m.mu.cut[l], m.mu.delay[l], m.mu.mended
}

// pass waits until the link is up. It returns false if stop is closed first.
func (m *mesh) pass(from, to string, stop <-chan struct{}) bool {
	_, delay, _ := m.link(from, to)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-stop:
			return false
		}
	}
	for {
		cut, _, mended := m.link(from, to)
		if !cut {
			return true
		}
		select {
		case <-mended:
		case <-stop:
			return false
		}
	}
}

// streams makes server id reachable, and replaces its earlier streams.
func (m *mesh) streams(id string) *meshStreams {
	s := &meshStreams{mesh: m, id: id, in: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.at[id] = s
	return s
}

// meshStreams is the Streams of one server.
type meshStreams struct {
	mesh   *mesh
	id     string
	in     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var errRefused = errors.New("connection refused")

func (s *meshStreams) Addr() net.Addr { return meshAddr(s.id) }

func (s *meshStreams) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *meshStreams) Accept() (net.Conn, error) {
	select {
	case c := <-s.in:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *meshStreams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	timer := make(chan struct{})
	defer time.AfterFunc(timeout, func() { close(timer) }).Stop()
	for _, l := range [][2]string{{s.id, id}, {id, s.id}} {
		if !s.mesh.pass(l[0], l[1], timer) {
			return nil, errors.New("dial timeout")
		}
	}
	s.mesh.mu.Lock()
	to := s.mesh.mu.at[id]
	s.mesh.mu.Unlock()
	if to == nil {
		return nil, errRefused
	}
	near, nearIn := net.Pipe()
	far, farIn := net.Pipe()
	select {
	case to.in <- far:
	case <-to.closed:
		return nil, errRefused
	case <-timer:
		return nil, errors.New("dial timeout")
	}
	stop := make(chan struct{})
	var once sync.Once
	// The end of a connection is visible over a cut link too, so that no test waits forever.
	end := func() {
		once.Do(func() { close(stop); _ = nearIn.Close(); _ = farIn.Close() })
	}
	go func() { defer end(); s.mesh.pump(s.id, id, nearIn, farIn, stop) }()
	go func() { defer end(); s.mesh.pump(id, s.id, farIn, nearIn, stop) }()
	return near, nil
}

// pump moves bytes over the link from one server to another. They leave the sender at once,
// whatever the state of the link.
func (m *mesh) pump(from, to string, in, out net.Conn, stop chan struct{}) {
	type piece struct{ b []byte }
	queue := make(chan piece, 4096)
	go func() {
		defer close(queue)
		b := make([]byte, 64<<10)
		for {
			n, err := in.Read(b)
			if err != nil {
				return
			}
			select {
			case queue <- piece{append([]byte(nil), b[:n]...)}:
			case <-stop:
				return
			}
		}
	}()
	for p := range queue {
		if !m.pass(from, to, stop) {
			return
		}
		if _, err := out.Write(p.b); err != nil {
			return
		}
	}
}

type meshAddr string

func (a meshAddr) Network() string { return "mesh" }
func (a meshAddr) String() string  { return string(a) }
