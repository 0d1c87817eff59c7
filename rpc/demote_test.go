package rpc

import (
	"net"
	"testing"
)

// demotable returns a server with 1 of 8 MiB of memory and one of three connections for preferred
// peers, and a connection of it that is one's.
func demotable(t *testing.T) (*testServer, *serverConn) {
	t.Helper()
	s := newBareServer(t, ServerConfig{
		MessageBytesMax: 1 << 20, MemoryBytesMax: 8 << 20, ReservedMemory: 1 << 20, ConnsMax: 3, ReservedConns: 1,
		Preferred: func(*Peer) bool { return true },
	})
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	c := newServerConn(s.Server, near, 1)
	s.Server.mu.conns[1] = c
	t.Cleanup(func() { s.forget(c) })
	return s, c
}

// A connection that was demoted does not use the memory that is reserved for preferred peers.
func TestDemotedMemory(t *testing.T) {
	_, c := demotable(t)
	if !(&Call{conn: c}).Demote() || !(&Call{conn: c}).Demote() {
		t.Fatal("was not demoted")
	}
	for i := range 8 {
		if err := c.acquireMemory(1 << 20); (err == nil) != (i < 7) {
			t.Errorf("after %d of 8 MiB, 1 MiB of which is reserved: %v", i, err)
		}
	}
	c.srv.memory.release(7 << 20)
}

// The unsent responses of a connection are charged as its own after it is demoted, and released as they
// were charged.
func TestDemotedUnsent(t *testing.T) {
	s, c := demotable(t)
	c.forceSent(3)
	c.forceSent(4)
	c.releaseSent(2)
	if forced := s.memory.forced.Load(); forced != 0 {
		t.Errorf("%d bytes are forced by others while the connection is preferred", forced)
	}
	c.demote()
	if forced := s.memory.forced.Load(); forced != 5 {
		t.Errorf("%d bytes are forced by others, want the 5 that are not sent", forced)
	}
	c.ahead.Add(6) // a response that was counted before the connection was demoted, and is forced only now
	s.memory.force(6, true)
	c.forceSent(10)
	c.releaseSent(11)
	if forced, used := s.memory.forced.Load(), s.memory.used.Load(); forced != 10 || used != 10 {
		t.Errorf("%d of %d bytes are forced by others, want 10 of 10", forced, used)
	}
	c.releaseSent(10)
	if forced, used := s.memory.forced.Load(), s.memory.used.Load(); forced != 0 || used != 0 {
		t.Errorf("%d of %d bytes are forced by others, want none", forced, used)
	}
}

// A connection cannot be demoted if others than preferred peers have as many as they may have.
func TestDemotedConns(t *testing.T) {
	s, c := demotable(t)
	s.Server.mu.conns[2], s.Server.mu.conns[3] = nil, nil
	if c.demote() || !c.preferred.Load() {
		t.Error("uses the connection that is reserved")
	}
	delete(s.Server.mu.conns, 2)
	delete(s.Server.mu.conns, 3)
	if !c.demote() || c.preferred.Load() {
		t.Error("was not demoted")
	}
}

// A preferred peer has no advantage after a call of it was demoted.
func TestDemoteCall(t *testing.T) {
	s := newBareServer(t, ServerConfig{ConnsMax: 3, ReservedConns: 1, Preferred: func(*Peer) bool { return true }})
	s.Handle("demote", Spawned, func(c *Call) {
		if !c.Demote() {
			c.Fail(Errorf(CodeOverloaded, "no connection is free"))
			return
		}
		c.Reply(nil)
	})
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	if err := c.Call(t.Context(), "demote", nil, nil); err != nil {
		t.Fatal(err)
	}
	s.Server.mu.Lock()
	defer s.Server.mu.Unlock()
	for _, c := range s.Server.mu.conns {
		if c.preferred.Load() {
			t.Error("the connection is preferred")
		}
	}
}
