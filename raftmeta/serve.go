package raftmeta

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
)

// serve starts answering the other servers on behalf of r, whose log is in store.
func (t *transport) serve(r *raft.Raft, store *storage.Log) {
	t.raft, t.store = r, store
	t.workers.Go(t.heartbeatLoop)
	if t.streams != nil {
		t.workers.Go(t.acceptLoop)
	}
}

// heartbeatLoop passes answered heartbeats to raft, waiting as long as necessary.
func (t *transport) heartbeatLoop() {
	for {
		select {
		case rpc := <-t.answeredHeartbeats:
			select {
			case t.requests <- rpc:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

// acceptPause is the pause after Accept failed.
const acceptPause = 50 * time.Millisecond

func (t *transport) acceptLoop() {
	for {
		c, err := t.streams.Accept()
		if err == nil {
			if t.register(c, true) {
				t.workers.Go(func() { t.serveConn(c) })
			} else {
				_ = c.Close()
			}
			continue
		}
		select {
		case <-t.done:
			return
		case <-time.After(acceptPause):
		}
		if errors.Is(err, net.ErrClosed) {
			t.log.Error("raftmeta stopped accepting connections", "err", err)
			return
		}
	}
}

// serveConn answers the messages of one connection.
func (t *transport) serveConn(c net.Conn) {
	defer t.closeConn(c, true)
	f := newFrames(c)
	_ = c.SetDeadline(time.Now().Add(quickTimeout))
	b, err := f.recv(nil)
	if err != nil {
		return
	}
	from, err := decodeHello(b, t.self)
	if p, ok := c.(AuthenticatedConn); ok && err == nil && p.Server() != from {
		err = fmt.Errorf("server %s claims to be server %.80q", p.Server(), from)
	}
	if err != nil {
		t.warner.Warn(t.log, "raftmeta rejected a connection", "from", c.RemoteAddr(), "err", err)
		e := wire.GetEncoder()
		defer e.Release()
		encodeAnswer(e, kindError, nil, err)
		_ = f.send(e)
		return
	}
	_ = c.SetDeadline(time.Time{})
	for {
		if err := t.serveOne(f, from); err != nil {
			var net net.Error
			if !errors.Is(err, io.EOF) && !errors.As(err, &net) && !errors.Is(err, errDisconnected) {
				t.warner.Warn(t.log, "raftmeta closed a connection", "server", from, "err", err)
			}
			t.connLost(from)
			return
		}
	}
}

// serveOne answers the next message of the server from.
func (t *transport) serveOne(f *frames, from string) error {
	b, err := f.recv(func() { _ = f.SetReadDeadline(time.Now().Add(appendTimeout)) })
	if err != nil {
		return err
	}
	_ = f.SetReadDeadline(time.Time{})
	k, request, err := decodeRequest(b, from)
	if err == nil {
		err = errors.Join(check(request, t.raft.CurrentTerm()), t.invited.check(request))
	}
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	moment.Pass("before a message of Raft is handled", kindNames[k])
	answer, refusal := t.answer(f, k, request, from)
	if errors.Is(refusal, errDisconnected) {
		return refusal
	}
	e := wire.GetEncoder()
	defer e.Release()
	encodeAnswer(e, k, answer, refusal)
	moment.Pass("before a message of Raft is answered", kindNames[k])
	_ = f.SetWriteDeadline(time.Now().Add(quickTimeout))
	return f.send(e)
}

// termStepMax bounds how far a term may be ahead of the server's own. Each election increases the
// term by one. After the largest possible term the group could never elect a leader again.
const termStepMax = 1 << 32

// check returns an error if raft, in that term, could not handle request. Raft trusts other
// servers: it would store invalid entries, and panic when it processes them.
func check(request any, term uint64) error {
	claimed := uint64(0)
	switch r := request.(type) {
	case *raft.AppendEntriesRequest:
		claimed = r.Term
		if err := checkEntries(r); err != nil {
			return err
		}
	case *raft.RequestVoteRequest:
		claimed = r.Term
	case *raft.RequestPreVoteRequest:
		claimed = r.Term
	case *raft.InstallSnapshotRequest:
		// Raft would read the whole snapshot before it rejects it, and do nothing else meanwhile.
		if claimed = r.Term; claimed < term {
			return fmt.Errorf("snapshot of term %d is older than term %d", claimed, term)
		}
		if _, err := decodeMembers(r.Configuration); err != nil {
			return err
		}
	}
	if claimed > term && claimed-term > termStepMax {
		return fmt.Errorf("term %d is too far ahead of term %d", claimed, term)
	}
	return nil
}

// checkEntries verifies that entries are consecutive, that their terms do not decrease or exceed
// the leader's, and that raft can decode the configurations among them.
func checkEntries(a *raft.AppendEntriesRequest) error {
	index, term := a.PrevLogEntry, a.PrevLogTerm
	for _, l := range a.Entries {
		if index++; l.Index != index || l.Term < term || l.Term > a.Term {
			return fmt.Errorf("entry %d of term %d from the leader of term %d: expected entry %d of a term from %d to %d", l.Index, l.Term, a.Term, index, term, a.Term)
		}
		term = l.Term
		if l.Type == raft.LogConfiguration {
			if _, err := decodeMembers(l.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareAppend modifies a request in two cases that raft handles wrongly.
//
// It drops entries that the newest snapshot covers, which ends with end. They are committed, so the
// leader has the same entries. But they may no longer be in the log here, and raft would then
// reject everything that follows.
//
// It bounds the commit index by the last entry that the request proves to be equal here. Raft would
// commit to the end of its log, and apply entries that another leader left there.
func prepareAppend(a *raft.AppendEntriesRequest, end *storage.EntryID) {
	last := a.PrevLogEntry + uint64(len(a.Entries))
	if planted.On(planted.CommitUnproven) {
		last = math.MaxUint64
	}
	if end != nil && a.PrevLogEntry < end.Index && !planted.On(planted.SnapshotEndForgotten) {
		a.Entries = a.Entries[min(end.Index-a.PrevLogEntry, uint64(len(a.Entries))):]
		a.PrevLogEntry, a.PrevLogTerm = end.Index, end.Term
		last = max(last, end.Index)
	}
	a.LeaderCommitIndex = min(a.LeaderCommitIndex, last)
}

// answer answers a request. Votes and calls for an election are accepted only from members. Entries
// and snapshots are accepted from any server that leads in a current term: a server that lags
// learns from them that the leader is a member, and a joining server does not know any members yet.
func (t *transport) answer(f *frames, k kind, request any, from string) (any, error) {
	switch k {
	case kindTerm:
		return termAnswer(max(t.raft.CurrentTerm(), t.invited.oldest())), nil
	case kindHeartbeat:
		return t.heartbeat(request.(*raft.AppendEntriesRequest))
	case kindAppend:
		prepareAppend(request.(*raft.AppendEntriesRequest), t.store.SnapshotEnd())
	case kindVote, kindPreVote, kindElect:
		if ok, since := t.isMember(from); !ok {
			return nil, &notMemberError{t.self, since}
		}
	case kindSnapshot:
		return t.install(f, request.(*raft.InstallSnapshotRequest))
	}
	return t.dispatch(request, nil)
}

// dispatch passes a request to raft's main goroutine and returns its answer.
func (t *transport) dispatch(request any, body io.Reader) (any, error) {
	if err := t.invited.mayVote(request); err != nil {
		return nil, err
	}
	answer := make(chan raft.RPCResponse, 1)
	closed := t.gate.passing()
	select {
	case <-closed: // if raft could receive, too, the choice below would be random
		return nil, errDisconnected
	default:
	}
	select {
	case t.requests <- raft.RPC{Command: request, Reader: body, RespChan: answer}:
	case <-closed:
		return nil, errDisconnected
	case <-t.done:
		return nil, errDisconnected
	}
	select {
	case a := <-answer:
		return a.Response, a.Error
	case <-t.done:
		return nil, errDisconnected
	}
}

// heartbeat answers a heartbeat. Raft's main goroutine may be waiting for the disk, and the leader
// must not take that for a failure. So a heartbeat to a follower in its current term is answered
// here. Raft is notified when it has time, because it measures its heartbeat timeout from the last
// contact.
//
// Raft's own heartbeat handler, which runs outside its main goroutine, sets the term. It can set
// the term back after a vote in a later term, and the server then follows a superseded leader. Here
// a heartbeat changes nothing. Only the main goroutine changes the term, and terms never decrease.
func (t *transport) heartbeat(a *raft.AppendEntriesRequest) (any, error) {
	if t.raft.State() != raft.Follower || t.raft.CurrentTerm() != a.Term {
		return t.dispatch(a, nil)
	}
	select {
	case t.answeredHeartbeats <- raft.RPC{Command: a, RespChan: make(chan raft.RPCResponse, 1)}:
	default:
	}
	return &raft.AppendEntriesResponse{Term: a.Term, LastLog: t.raft.LastIndex(), Success: true}, nil
}

// deadlineReader sets a new deadline for each read.
type deadlineReader struct{ f *frames }

func (r *deadlineReader) Read(b []byte) (int, error) {
	_ = r.f.SetReadDeadline(time.Now().Add(snapshotPause))
	n, err := r.f.r.Read(b)
	_ = r.f.SetReadDeadline(time.Time{})
	return n, err
}
