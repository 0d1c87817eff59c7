package raftmeta

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/wire"
)

// serve answers the other servers, for r, whose log is in store.
func (t *transport) serve(r *raft.Raft, store *logStore) {
	t.raft, t.store = r, store
	t.workers.Go(t.nudgeLoop)
	if t.streams != nil {
		t.workers.Go(t.acceptLoop)
	}
}

// nudgeLoop hands answered heartbeats to raft, for as long as that takes.
func (t *transport) nudgeLoop() {
	for {
		select {
		case rpc := <-t.nudges:
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

// acceptPause is the pause after a connection could not be accepted.
const acceptPause = 50 * time.Millisecond

func (t *transport) acceptLoop() {
	for {
		c, err := t.streams.Accept()
		if err == nil {
			if t.keep(c, true) {
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
			t.log.Error("raftmeta accepts no connections any more", "error", err)
			return
		}
	}
}

// serveConn answers the messages of one connection.
func (t *transport) serveConn(c net.Conn) {
	defer t.drop(c, true)
	f := newFrames(c)
	_ = c.SetDeadline(time.Now().Add(quickTimeout))
	b, err := f.recv(nil)
	if err != nil {
		return
	}
	from, err := decodeHello(b, t.self)
	if p, ok := c.(Proven); ok && err == nil && p.Server() != from {
		err = fmt.Errorf("server %s says that it is server %.80q", p.Server(), from)
	}
	if err != nil {
		t.warner.Warn(t.log, "raftmeta refused a connection", "from", c.RemoteAddr(), "reason", err)
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
			if !errors.Is(err, io.EOF) && !errors.As(err, &net) && !errors.Is(err, errCut) {
				t.warner.Warn(t.log, "raftmeta closed a connection", "server", from, "reason", err)
			}
			t.connLost(from)
			return
		}
	}
}

// serveOne answers the next message of server from.
func (t *transport) serveOne(f *frames, from string) error {
	b, err := f.recv(func() { _ = f.SetReadDeadline(time.Now().Add(appendTimeout)) })
	if err != nil {
		return err
	}
	_ = f.SetReadDeadline(time.Time{})
	k, request, err := decodeRequest(b, from)
	if err == nil {
		err = check(request, t.raft.CurrentTerm())
	}
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	answer, refusal := t.answer(f, k, request, from)
	if errors.Is(refusal, errCut) {
		return refusal
	}
	e := wire.GetEncoder()
	defer e.Release()
	encodeAnswer(e, k, answer, refusal)
	_ = f.SetWriteDeadline(time.Now().Add(quickTimeout))
	return f.send(e)
}

// termStepMax bounds how far ahead a term may be of the server's own. Terms grow by one with each election: after the last that there
// can be the group would have no leader any more.
const termStepMax = 1 << 32

// check makes sure that raft, whose term is that, can work on a request: it trusts the others, keeps what they send, and
// panics when it gets to it.
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
		if claimed = r.Term; claimed < term { // raft would refuse it when all of it has come, and do nothing else until then
			return fmt.Errorf("snapshot of term %d, in term %d", claimed, term)
		}
		if _, err := decodeMembers(r.Configuration); err != nil {
			return err
		}
	}
	if claimed > term && claimed-term > termStepMax {
		return fmt.Errorf("term %d, in term %d", claimed, term)
	}
	return nil
}

// checkEntries makes sure that entries are a piece of a log, and that raft can read the configurations among them.
func checkEntries(a *raft.AppendEntriesRequest) error {
	index, term := a.PrevLogEntry, a.PrevLogTerm
	for _, l := range a.Entries {
		if index++; l.Index != index || l.Term < term || l.Term > a.Term {
			return fmt.Errorf("entry %d of term %d, from who leads in term %d, where entry %d of term %d or later has to be", l.Index, l.Term, a.Term, index, term)
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

// prepareAppend changes a request for entries where raft would go wrong.
//
// It leaves out entries that the newest snapshot, which ends with end, covers.
// They are committed, so the leader has the same ones; but they may be in no log
// here, and raft would reject everything that follows them.
//
// It bounds the commit index by the last entry that the request proves to be the
// same here. Raft would go on to the end of its log, and apply entries that another
// leader left there.
func prepareAppend(a *raft.AppendEntriesRequest, end *entryID) {
	last := a.PrevLogEntry + uint64(len(a.Entries))
	if end != nil && a.PrevLogEntry < end.index {
		a.Entries = a.Entries[min(end.index-a.PrevLogEntry, uint64(len(a.Entries))):]
		a.PrevLogEntry, a.PrevLogTerm = end.index, end.term
		last = max(last, end.index)
	}
	a.LeaderCommitIndex = min(a.LeaderCommitIndex, last)
}

// answer answers a request. Votes, and calls for an election, are for members alone. Entries and snapshots are taken of whoever leads by his
// term: a server that lags learns from them that he is a member, and one that waits has no members yet.
func (t *transport) answer(f *frames, k kind, request any, from string) (any, error) {
	switch k {
	case kindTerm:
		return termAnswer(t.raft.CurrentTerm()), nil
	case kindHeartbeat:
		return t.heartbeat(request.(*raft.AppendEntriesRequest))
	case kindAppend:
		prepareAppend(request.(*raft.AppendEntriesRequest), t.store.end.Load())
	case kindVote, kindPreVote, kindElect:
		if ok, since := t.isMember(from); !ok {
			return nil, &notMemberError{t.self, since}
		}
	case kindSnapshot:
		return t.install(f, request.(*raft.InstallSnapshotRequest))
	}
	return t.dispatch(request, nil)
}

// dispatch has raft's main goroutine answer.
func (t *transport) dispatch(request any, body io.Reader) (any, error) {
	answer := make(chan raft.RPCResponse, 1)
	select {
	case t.requests <- raft.RPC{Command: request, Reader: body, RespChan: answer}:
	case <-t.done:
		return nil, errCut
	}
	select {
	case a := <-answer:
		return a.Response, a.Error
	case <-t.done:
		return nil, errCut
	}
}

// heartbeat answers a heartbeat. Raft's main goroutine may be waiting for the
// disk, and the leader must not take that for death; so a follower of the term
// at hand is answered for here, and raft is told when it has time, for it
// counts from the last contact when to call an election.
//
// Raft has a handler of its own for this, which runs beside its main goroutine
// and sets the term. It can set it back, after a vote in a later term, and the
// server then follows a leader that has been superseded. Here a heartbeat
// changes nothing; only the main goroutine does, and terms only grow.
func (t *transport) heartbeat(a *raft.AppendEntriesRequest) (any, error) {
	if t.raft.State() != raft.Follower || t.raft.CurrentTerm() != a.Term {
		return t.dispatch(a, nil)
	}
	select {
	case t.nudges <- raft.RPC{Command: a, RespChan: make(chan raft.RPCResponse, 1)}:
	default:
	}
	return &raft.AppendEntriesResponse{Term: a.Term, LastLog: t.raft.LastIndex(), Success: true}, nil
}

// patientReader gives each read a deadline of its own.
type patientReader struct{ f *frames }

func (r *patientReader) Read(b []byte) (int, error) {
	_ = r.f.SetReadDeadline(time.Now().Add(snapshotPause))
	n, err := r.f.r.Read(b)
	_ = r.f.SetReadDeadline(time.Time{})
	return n, err
}
