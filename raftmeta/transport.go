package raftmeta

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/seldom"
	"github.com/steledb/stele/internal/wire"
)

const (
	// dialTimeout bounds the making of a connection.
	dialTimeout = time.Second
	// quickTimeout bounds messages that wait for no disk, or for a few bytes:
	// heartbeats, votes. A connection that swallows them, as after a
	// partition, is given up after it.
	quickTimeout = time.Second
	// appendTimeout bounds one message of entries, which the other stores.
	appendTimeout = 4 * time.Second
	// snapshotPause bounds each write of a snapshot that is being sent, and
	// restoreTimeout the other's work when it has all of it.
	snapshotPause  = 10 * time.Second
	restoreTimeout = 5 * time.Minute
	// idlePerServer is the number of idle connections kept to each server:
	// entries, heartbeats and questions for the term go side by side.
	idlePerServer = 3
	// connsMax bounds the connections from other servers. Further ones are
	// closed at once.
	connsMax = 256
	// connsOfOne bounds those of one server that is proven to be it, which needs about ten: it must not keep the others out.
	connsOfOne = 48
)

var errCut = errors.New("connections to the other servers are closed")

// transport carries raft's messages. It implements raft.Transport.
//
// It is ours rather than raft's for what that lacks. Each connection names both
// ends, so that a server which has got another's address does not vote in its
// place. Nothing that arrives is trusted for its size. Heartbeats are answered
// while the disk is busy, and yet only raft's main goroutine changes the term:
// see heartbeat. The time at which an answered message was sent is kept: see
// contacts.
type transport struct {
	self     string
	streams  Streams // nil: alone
	log      *slog.Logger
	warner   seldom.Warner // of what others cause
	contacts *contacts
	// removed is told that a server does not count this one as a member.
	removed func(*notMemberError)
	// connLost is told that a connection from that server has ended.
	connLost func(from string)
	// isMember tells whether the group counts that server as a member, and
	// otherwise since which entry it does not.
	isMember func(id string) (bool, uint64)
	// fail ends this server's service. It does not block.
	fail func(error)

	// requests go to raft. Nobody waits in it when raft has ended: done.
	requests chan raft.RPC
	// nudges are heartbeats that were answered, for raft to note the contact.
	nudges chan raft.RPC
	// raft and its log are those of this server, once it serves.
	raft  *raft.Raft
	store *logStore

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		cut   bool
		idle  map[string][]*frames
		conns map[net.Conn]bool // all, in both directions
		in    int               // those from other servers
		of    map[string]int    // of these, by who is proven to be there
	}
	// done is closed when the connections are cut.
	done    chan struct{}
	workers sync.WaitGroup
}

func newTransport(self string, streams Streams, log *slog.Logger, contacts *contacts) *transport {
	t := &transport{
		self:     self,
		streams:  streams,
		log:      log,
		contacts: contacts,
		requests: make(chan raft.RPC),
		nudges:   make(chan raft.RPC, 1),
		done:     make(chan struct{}),
	}
	t.mu.idle = map[string][]*frames{}
	t.mu.conns = map[net.Conn]bool{}
	t.mu.of = map[string]int{}
	return t
}

// cut closes all connections, in both directions, and lets no further one be
// made. A leader that cannot go on is thus missed at once.
func (t *transport) cut() error {
	t.mu.Lock()
	if t.mu.cut {
		t.mu.Unlock()
		return nil
	}
	t.mu.cut = true
	conns := t.mu.conns
	t.mu.conns, t.mu.idle = nil, nil
	t.mu.Unlock()
	close(t.done)
	for c := range conns {
		_ = c.Close()
	}
	if t.streams == nil {
		return nil
	}
	if err := t.streams.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close streams: %w", err)
	}
	return nil
}

// close cuts the connections and waits for those who serve them. Raft must
// have ended.
func (t *transport) close() error {
	err := t.cut()
	t.workers.Wait()
	return err
}

// keep notes a connection, unless all are cut or, for one from another server,
// there are too many, of all or of that one.
func (t *transport) keep(c net.Conn, in bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.cut || in && t.mu.in >= connsMax {
		return false
	}
	if p, ok := c.(Proven); ok && in {
		if t.mu.of[p.Server()] >= connsOfOne {
			return false
		}
		t.mu.of[p.Server()]++
	}
	t.mu.conns[c] = true
	if in {
		t.mu.in++
	}
	return true
}

// drop closes a connection that was kept.
func (t *transport) drop(c net.Conn, in bool) {
	_ = c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if in {
		t.mu.in--
		if p, ok := c.(Proven); ok {
			if t.mu.of[p.Server()]--; t.mu.of[p.Server()] == 0 {
				delete(t.mu.of, p.Server())
			}
		}
	}
	delete(t.mu.conns, c)
}

// take returns an idle connection to id, or nil.
func (t *transport) take(id string) *frames {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.mu.idle[id]
	if len(idle) == 0 {
		return nil
	}
	f := idle[len(idle)-1]
	t.mu.idle[id] = idle[:len(idle)-1]
	return f
}

// give keeps a connection for the next message.
func (t *transport) give(id string, f *frames) {
	t.mu.Lock()
	if idle := t.mu.idle[id]; !t.mu.cut && len(idle) < idlePerServer {
		t.mu.idle[id] = append(idle, f)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.drop(f.Conn, false)
}

// dial makes a connection to id. The greeting goes with the first message.
func (t *transport) dial(id string) (*frames, error) {
	select {
	case <-t.done:
		return nil, errCut
	default:
	}
	if t.streams == nil {
		return nil, ErrNoStreams
	}
	c, err := t.streams.Dial(id, dialTimeout)
	if err != nil {
		return nil, err
	}
	if !t.keep(c, false) {
		_ = c.Close()
		return nil, errCut
	}
	f := newFrames(c)
	e := wire.GetEncoder()
	defer e.Release()
	encodeHello(e, t.self, id)
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	if err := f.send(e); err != nil {
		t.drop(c, false)
		return nil, err
	}
	return f, nil
}

// call sends request to id and reads the answer. A connection that was idle may
// have been closed at the other end; the message is then sent once more over a
// new one. All of raft's messages may arrive twice.
func (t *transport) call(id string, request, answer any, timeout time.Duration) error {
	f := t.take(id)
	fresh := f == nil
	for {
		if fresh {
			var err error
			if f, err = t.dial(id); err != nil {
				return err
			}
		}
		err := t.exchange(f, id, request, answer, timeout)
		var out *notMemberError
		switch {
		case err == nil:
			t.give(id, f)
			return nil
		case errors.As(err, &out):
			t.give(id, f)
			t.removed(out)
			return err
		}
		t.drop(f.Conn, false)
		if fresh || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		fresh = true
	}
}

func (t *transport) exchange(f *frames, id string, request, answer any, timeout time.Duration) error {
	e := wire.GetEncoder()
	defer e.Release()
	encodeRequest(e, request)
	_ = f.SetDeadline(time.Now().Add(timeout))
	if err := f.send(e); err != nil {
		return err
	}
	b, err := f.recv(nil)
	if err != nil {
		return err
	}
	return decodeAnswer(b, id, answer)
}

// term asks id for its term.
func (t *transport) term(id string) (uint64, error) {
	var a termAnswer
	err := t.call(id, nil, &a, quickTimeout)
	return uint64(a), err
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress, a *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	timeout := appendTimeout
	if isHeartbeat(a) {
		timeout = quickTimeout
	}
	asked := time.Now()
	if err := t.call(string(id), a, resp, timeout); err != nil {
		return err
	}
	t.contacts.answered(string(id), asked, resp.Term)
	if resp.Success && !isHeartbeat(a) {
		match := a.PrevLogEntry
		if n := len(a.Entries); n > 0 {
			match = a.Entries[n-1].Index
		}
		t.contacts.matched(string(id), a.Term, match)
	}
	return nil
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, v *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.call(string(id), v, resp, quickTimeout)
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, v *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.call(string(id), v, resp, quickTimeout)
}

// TimeoutNow implements raft.Transport.
func (t *transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, r *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.call(string(id), r, resp, quickTimeout)
}

// InstallSnapshot implements raft.Transport. The snapshot follows the message,
// over a connection of its own.
func (t *transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, r *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	f, err := t.dial(string(id))
	if err != nil {
		return err
	}
	defer t.drop(f.Conn, false)
	e := wire.GetEncoder()
	defer e.Release()
	encodeRequest(e, r)
	if err := f.send(e); err != nil {
		return err
	}
	n, err := io.Copy(&patientWriter{f.Conn}, data)
	if err == nil && n != r.Size {
		err = fmt.Errorf("snapshot has %d bytes, not %d", n, r.Size)
	}
	if err != nil {
		return fmt.Errorf("send snapshot to %s: %w", id, err)
	}
	_ = f.SetDeadline(time.Now().Add(restoreTimeout))
	b, err := f.recv(nil)
	if err != nil {
		return err
	}
	return decodeAnswer(b, string(id), resp)
}

// patientWriter gives each write a deadline of its own.
type patientWriter struct{ net.Conn }

func (w *patientWriter) Write(b []byte) (int, error) {
	_ = w.SetDeadline(time.Now().Add(snapshotPause))
	return w.Conn.Write(b)
}

// AppendEntriesPipeline implements raft.Transport. One message at a time to
// each server: raft's pipelining can deadlock, and with batches it gains
// nothing.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.requests }

// LocalAddr implements raft.Transport. A server's address is its id: Streams
// know where it is now.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }

// DecodePeer implements raft.Transport.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport. Raft's handler is not used:
// see heartbeat.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}
