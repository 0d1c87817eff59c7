package node_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/verify"
	"github.com/steledb/stele/raftmeta/journal"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/table"
)

// wires is a network in memory. Its addresses, of a block for documentation, exist nowhere else.
type wires struct {
	mu        sync.Mutex
	port      uint16 // of the last connection
	listeners map[string]*wireListener
	sockets   map[string]*wireSockets
}

// wireHost is the network as one host sees it.
type wireHost struct {
	*wires
	ip netip.Addr
}

type wireListener struct {
	*wires
	at     netip.AddrPort
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// wireConn is one end of a connection.
type wireConn struct {
	net.Conn
	local, remote net.Addr
}

func (c *wireConn) LocalAddr() net.Addr  { return c.local }
func (c *wireConn) RemoteAddr() net.Addr { return c.remote }

func (w wireHost) Listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners[address] != nil || at.Addr() != w.ip {
		return nil, syscall.EADDRINUSE
	}
	l := &wireListener{wires: w.wires, at: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	w.listeners[address] = l
	return l, nil
}

func (l *wireListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, l.at.String())
	})
	return nil
}

// pair returns both ends of a connection to an address.
func (w wireHost) pair(to netip.AddrPort) (near, far net.Conn) {
	w.mu.Lock()
	w.port++
	from := netip.AddrPortFrom(w.ip, 10_000+w.port)
	w.mu.Unlock()
	a, b := net.Pipe()
	local, remote := net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	return &wireConn{a, local, remote}, &wireConn{b, remote, local}
}

func (w wireHost) Dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[address]
	w.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	near, far := w.pair(l.at)
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wireSockets are sockets for gossip.
type wireSockets struct {
	wireHost
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (w wireHost) Gossip(address string, _ *log.Logger) (gossip.Sockets, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	s := &wireSockets{wireHost: w, at: at, packets: make(chan *memberlist.Packet, 100), streams: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets[address] = s
	return s, nil
}

func (s *wireSockets) Port() int                           { return int(s.at.Port()) }
func (s *wireSockets) PacketCh() <-chan *memberlist.Packet { return s.packets }
func (s *wireSockets) StreamCh() <-chan net.Conn           { return s.streams }
func (s *wireSockets) socketsAt(address string) *wireSockets {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets[address]
}

func (s *wireSockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	return net.ParseIP(ip), port, nil
}

func (s *wireSockets) WriteTo(b []byte, address string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: address})
}

func (s *wireSockets) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	now := time.Now()
	if to := s.socketsAt(a.Addr); to != nil {
		select {
		case to.packets <- &memberlist.Packet{Buf: bytes.Clone(b), From: net.UDPAddrFromAddrPort(s.at), Timestamp: now}:
		default: // lost
		}
	}
	return now, nil
}

func (s *wireSockets) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

func (s *wireSockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to := s.socketsAt(a.Addr)
	if to == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := s.pair(to.at)
	select {
	case to.streams <- far:
		return near, nil
	case <-to.closed:
		return nil, syscall.ECONNREFUSED
	case <-time.After(timeout):
		return nil, os.ErrDeadlineExceeded
	}
}

func (s *wireSockets) Shutdown() error {
	s.once.Do(func() {
		close(s.closed)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sockets, s.at.String())
	})
	return nil
}

// memCluster prepares a cluster whose nodes have certificates, and disks and a network in memory.
func memCluster(t *testing.T, n int) (*testCluster, []*vfs.Mem) {
	f := newTestCluster(t, n)
	logs := &transcript{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' log:\n%s", logs.String())
		}
	})
	network := &wires{listeners: map[string]*wireListener{}, sockets: map[string]*wireSockets{}}
	var disks []*vfs.Mem
	var first *keydir.Contents
	for i := range n {
		host := wireHost{network, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}
		f.addrs[i] = netip.AddrPortFrom(host.ip, 7106).String()
		mem := vfs.NewMem(vfs.MemOptions{Capacity: 8 << 30})
		dir := fmt.Sprintf("/stele-memory-test/%d", i)
		disks = append(disks, mem)
		cfg := &f.cfgs[i]
		cfg.FS, cfg.OpenRaftLog, cfg.Network = mem, journal.Opener(mem), host
		cfg.DataDirs, cfg.Security = []string{dir}, filepath.Join(dir, certs.FolderName)
		cfg.Listen, cfg.Gossip = f.addrs[i], netip.AddrPortFrom(host.ip, 7107).String()
		cfg.Logger = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", cfg.Name)
		dirs := good(identity.InspectFS(mem, cfg.DataDirs))
		if err := dirs.Write(); err != nil {
			t.Fatal(err)
		}
		keys := keydir.On(mem, cfg.Security)
		if i == 0 {
			f.as = good(keys.Init(dirs.Node, nil, time.Now()))
			first = good(keys.Load())
			continue
		}
		own := issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
			return first.Authority.SignNode(r, dirs.Node, nil, time.Now())
		})
		if err := keys.Enrol(&keydir.Contents{Credential: own, GossipKeys: first.GossipKeys}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = n, f.addrs
	}
	return f, disks
}

// TestNothingBypassesTheSeams: nodes with disks and a network in memory form a cluster, serve rows, and have them after a restart. They
// leave no file on the machine's disk, and have no other way to each other.
func TestNothingBypassesTheSeams(t *testing.T) {
	t.Parallel()
	f, disks := memCluster(t, 3)
	f.startAll()
	dial := wireHost{f.cfgs[0].Network.(wireHost).wires, netip.MustParseAddr("192.0.2.99")}.Dial
	open := func() *client.Client {
		c := good(client.Open(context.Background(), f.addrs[1], client.Config{Credential: f.as, Dial: dial}))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx := within(t, time.Minute)
	c := open()
	for status := good(c.Nodes().RaftStatus(ctx)); !votersAlive(3)(status); status = good(c.Nodes().RaftStatus(ctx)) {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("v", 10_000)
	row := func(i int) string { return fmt.Sprintf("r%03d", i) }
	for i := range 200 {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(row(i)).Set("f:q", []byte(value+row(i)))); err != nil {
			t.Fatal(err)
		}
	}
	check := func(c *client.Client) {
		t.Helper()
		for i := range 200 {
			if got, err := c.Table("t").Get(ctx, row(i)); err != nil || len(got.Cells) != 1 || string(got.Cells[0].Value) != value+row(i) {
				t.Fatalf("%s: %d cells, %v", row(i), len(got.Cells), err)
			}
		}
	}
	check(c)
	if _, err := net.DialTimeout("tcp", f.addrs[0], 100*time.Millisecond); err == nil {
		t.Error("a node listens on the machine's network")
	}
	for i := range f.nodes {
		f.stop(i)
	}
	for i, mem := range disks {
		f.cfgs[i].FS = mem
		checker := verify.Config{FS: mem, OpenRaftLog: f.cfgs[i].OpenRaftLog}
		sum, err := checker.Folders(ctx, f.cfgs[i].DataDirs, masterkeys.Source{}, func(p verify.Problem) { t.Errorf("node %d: %+v", i, p) })
		if err != nil || sum.Logs+sum.Blobs == 0 {
			t.Errorf("node %d holds %+v, %v", i, sum, err)
		}
	}
	f.startAll()
	check(open())
	if _, err := os.Stat("/stele-memory-test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("on the machine's disk: %v", err)
	}
}
