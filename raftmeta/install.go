package raftmeta

import (
	"errors"
	"io"
	"sync"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/planted"
)

// errNotNeeded stops the transfer of a snapshot whose entries this server already has.
var errNotNeeded = errors.New("snapshot is not needed")

// install passes a snapshot, whose stream follows on f, to raft, unless this server already has
// everything that it covers.
//
// Raft itself would install any snapshot of the current term, even a late or repeated one. It would
// then delete the log with acknowledged entries, roll the namespace back, and fail when it applies
// the next entry.
func (t *transport) install(f *frames, r *raft.InstallSnapshotRequest) (any, error) {
	s := &incomingSnapshot{t: t, last: storage.EntryID{Index: r.LastLogIndex, Term: r.LastLogTerm}, r: io.LimitReader(&deadlineReader{f}, r.Size)}
	if !t.covers(s.last) {
		answer, err := t.dispatch(r, s)
		switch {
		case errors.Is(err, errDisconnected): // raft may still read s
			return nil, err
		case s.replaces && err == nil && answer.(*raft.InstallSnapshotResponse).Success:
			// Raft still takes the last entry of the old log for its own, and would reject what
			// follows the snapshot.
			t.fail(ErrLogReplaced)
			return answer, nil
		case s.replaces:
			t.gate.open()
		}
		if !errors.Is(err, errNotNeeded) {
			return answer, err
		}
	}
	// The leader reads the answer only after it has sent everything.
	if _, err := io.Copy(io.Discard, s.r); err != nil {
		return nil, err
	}
	return &raft.InstallSnapshotResponse{RPCHeader: headerOf(t.self), Term: t.raft.CurrentTerm(), Success: true}, nil
}

// covers reports whether this server has the entries up to last: they were applied, or the log
// contains last and therefore all entries before it.
func (t *transport) covers(last storage.EntryID) bool {
	if planted.On(planted.LateSnapshot) {
		return false
	}
	return last.Index <= t.raft.AppliedIndex() || t.store.Holds(last)
}

// incomingSnapshot is the stream of a snapshot from another server. It implements io.Reader.
type incomingSnapshot struct {
	t    *transport
	last storage.EntryID // the last entry that it covers
	r    io.Reader
	// begun is set by the first read. replaces is set if the log then extended beyond the snapshot
	// with different entries.
	begun, replaces bool
}

// Read implements io.Reader. Raft's main goroutine calls it, and only that goroutine changes the
// end of the log and the applied index. So the first read decides whether the snapshot is needed,
// and the decision holds until raft has installed it.
func (s *incomingSnapshot) Read(p []byte) (int, error) {
	if !s.begun {
		if s.t.covers(s.last) {
			return 0, errNotNeeded
		}
		s.begun, s.replaces = true, s.t.raft.LastIndex() >= s.last.Index && !planted.On(planted.LateSnapshot)
		if s.replaces {
			// Raft would apply entries of the old log, which it has deleted by then, if it received
			// another request behind the snapshot.
			s.t.gate.close()
		}
	}
	return s.r.Read(p)
}

// gate stops requests to raft. It is open at first.
type gate struct {
	// mu guards the field in it.
	mu struct {
		sync.Mutex
		closed chan struct{} // closed while the gate is
	}
}

// passing returns a channel that is closed while the gate is, and when it closes.
func (g *gate) passing() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed == nil {
		g.mu.closed = make(chan struct{})
	}
	return g.mu.closed
}

// close stops requests that wait for raft, and further ones. Its caller is raft's main goroutine,
// so none is on its way.
func (g *gate) close() {
	g.passing()
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mu.closed)
}

// open lets further requests pass.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.closed = nil
}
