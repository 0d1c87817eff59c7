package raftmeta

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/wire"
)

const (
	// dialTimeout bounds the time to connect.
	dialTimeout = time.Second
	// quickTimeout bounds messages that need no disk or only a small write: heartbeats and votes.
	// It also limits how long a connection that drops messages, as after a partition, stays in use.
	quickTimeout = time.Second
	// appendTimeout bounds one message of entries, which the receiver stores.
	appendTimeout = 4 * time.Second
	// snapshotPause bounds each write of a snapshot being sent, and restoreTimeout the receiver's
	// work after it has the whole snapshot.
	snapshotPause  = 10 * time.Second
	restoreTimeout = 5 * time.Minute
	// idlePerServer bounds the idle connections to each server: entries, heartbeats and requests
	// for the term run in parallel.
	idlePerServer = 3
	// connsMax bounds the connections from other servers. Further ones are closed at once.
	connsMax = 256
	// connsPerServerMax bounds the connections from one authenticated server, so that it cannot lock the others
	// out. A server needs about ten.
	connsPerServerMax = 48
)

var errDisconnected = errors.New("connections to the other servers are closed")

// transport carries raft's messages. It implements raft.Transport.
//
// It replaces raft's own transport for these reasons. Each connection names both ends, so that a
// server that got the address of another does not vote in its place. Lengths in messages are not
// trusted. Heartbeats are answered while the disk is busy, and still only raft's main goroutine
// changes the term: see heartbeat. The time at which an answered message was sent is recorded: see
// contacts.
type transport struct {
	self     string
	streams  Streams // nil: a group of one server
	log      *slog.Logger
	warner   loglimit.Warner // for warnings that other servers cause
	contacts *contacts
	// onRemoved is called when a server reports that this one is not a member.
	onRemoved func(*notMemberError)
	// connLost is called when a connection from that server has ended.
	connLost func(from string)
	// isMember reports whether the server is a member, and if not, since which entry.
	isMember func(id string) (bool, uint64)
	invited  *invited
	// fail stops this server's service. It does not block.
	fail func(error)

	// requests go to raft. Senders also wait for done, because raft does not receive after it has
	// stopped.
	requests chan raft.RPC
	// gate is closed while a snapshot replaces the log.
	gate gate
	// answeredHeartbeats are heartbeats that were answered, for raft to update its last contact.
	answeredHeartbeats chan raft.RPC
	// raft and store are set by serve.
	raft  *raft.Raft
	store *storage.Log

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		disconnected bool
		idle         map[string][]*frames
		conns        []net.Conn     // all, in both directions
		in           int            // number of those from other servers
		perServer    map[string]int // number of those from each authenticated server
	}
	// done is closed when the connections are closed.
	done    chan struct{}
	workers sync.WaitGroup
}

func newTransport(self string, streams Streams, log *slog.Logger, contacts *contacts) *transport {
	t := &transport{
		self:               self,
		streams:            streams,
		log:                log,
		contacts:           contacts,
		invited:            &invited{},
		requests:           make(chan raft.RPC),
		answeredHeartbeats: make(chan raft.RPC, 1),
		done:               make(chan struct{}),
	}
	t.mu.idle = map[string][]*frames{}
	t.mu.perServer = map[string]int{}
	return t
}

// disconnect closes all connections, in both directions, and prevents new ones, so that the others notice
// the failure of a leader at once.
func (t *transport) disconnect() error {
	t.mu.Lock()
	if t.mu.disconnected {
		t.mu.Unlock()
		return nil
	}
	t.mu.disconnected = true
	conns := t.mu.conns
	t.mu.conns, t.mu.idle = nil, nil
	t.mu.Unlock()
	close(t.done)
	for _, c := range conns {
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

// close closes the connections and waits for the goroutines that serve them. Raft must have
// stopped.
func (t *transport) close() error {
	err := t.disconnect()
	t.workers.Wait()
	return err
}

// register registers a connection. It returns false after disconnect, and for a connection from another server
// if there are too many in total or from that server.
func (t *transport) register(c net.Conn, in bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.disconnected || in && t.mu.in >= connsMax {
		return false
	}
	if p, ok := c.(AuthenticatedConn); ok && in {
		if t.mu.perServer[p.Server()] >= connsPerServerMax {
			return false
		}
		t.mu.perServer[p.Server()]++
	}
	t.mu.conns = append(t.mu.conns, c)
	if in {
		t.mu.in++
	}
	return true
}

// closeConn closes a registered connection.
func (t *transport) closeConn(c net.Conn, in bool) {
	_ = c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if in {
		t.mu.in--
		if p, ok := c.(AuthenticatedConn); ok {
			if t.mu.perServer[p.Server()]--; t.mu.perServer[p.Server()] == 0 {
				delete(t.mu.perServer, p.Server())
			}
		}
	}
	t.mu.conns = slices.DeleteFunc(t.mu.conns, func(other net.Conn) bool { return other == c })
}

// takeIdle returns an idle connection to id, or nil.
func (t *transport) takeIdle(id string) *frames {
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

// putIdle returns a connection for use by the next message.
func (t *transport) putIdle(id string, f *frames) {
	t.mu.Lock()
	if idle := t.mu.idle[id]; !t.mu.disconnected && len(idle) < idlePerServer {
		t.mu.idle[id] = append(idle, f)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.closeConn(f.Conn, false)
}

// dial connects to id and sends the first message of the connection.
func (t *transport) dial(id string) (*frames, error) {
	select {
	case <-t.done:
		return nil, errDisconnected
	default:
	}
	if t.streams == nil {
		return nil, ErrNoStreams
	}
	c, err := t.streams.Dial(id, dialTimeout)
	if err != nil {
		return nil, err
	}
	if !t.register(c, false) {
		_ = c.Close()
		return nil, errDisconnected
	}
	f := newFrames(c)
	e := wire.GetEncoder()
	defer e.Release()
	encodeHello(e, t.self, id)
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	if err := f.send(e); err != nil {
		t.closeConn(c, false)
		return nil, err
	}
	return f, nil
}

// call sends request to id and reads the answer. An idle connection may have been closed by its
// peer; the message is then sent once more over a new one. It is safe to deliver raft's messages
// twice.
func (t *transport) call(id string, request, answer any, timeout time.Duration) error {
	f := t.takeIdle(id)
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
			t.putIdle(id, f)
			return nil
		case errors.As(err, &out):
			t.putIdle(id, f)
			t.onRemoved(out)
			return err
		}
		t.closeConn(f.Conn, false)
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

// term requests the term of id.
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
	sentAt := time.Now()
	if err := t.call(string(id), a, resp, timeout); err != nil {
		return err
	}
	t.contacts.answered(string(id), sentAt, resp.Term)
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

// InstallSnapshot implements raft.Transport. The snapshot follows the message, on a separate
// connection.
func (t *transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, r *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	f, err := t.dial(string(id))
	if err != nil {
		return err
	}
	defer t.closeConn(f.Conn, false)
	e := wire.GetEncoder()
	defer e.Release()
	encodeRequest(e, r)
	if err := f.send(e); err != nil {
		return err
	}
	n, err := io.Copy(&deadlineWriter{f.Conn}, data)
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

// deadlineWriter sets a new deadline for each write.
type deadlineWriter struct{ net.Conn }

func (w *deadlineWriter) Write(b []byte) (int, error) {
	_ = w.SetDeadline(time.Now().Add(snapshotPause))
	return w.Conn.Write(b)
}

// AppendEntriesPipeline implements raft.Transport. It is not supported: raft's pipelining can
// deadlock, and gains nothing with batches. One message at a time is sent to each server.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.requests }

// LocalAddr implements raft.Transport. The address of a server is its id, which Streams resolves.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }

// DecodePeer implements raft.Transport.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport. Raft's handler is not used:
// see heartbeat.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}
