package formation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// Handle registers the methods cluster.* with the node's server, before its first
// Serve. They answer as soon as it serves, which must be before Run.
func (f *Former) Handle(s *rpc.Server) {
	s.Handle(MethodHello, rpc.Spawned, handler(f, f.onHello))
	s.Handle(MethodPromise, rpc.Spawned, handler(f, f.onPromise))
	s.Handle(MethodJoin, rpc.Spawned, handler(f, f.onJoin))
}

// handler reads the parameters, of which there is one, and answers.
func handler(f *Former, answer func(c *rpc.Call) (func(*wire.Encoder), error)) func(*rpc.Call) {
	return func(c *rpc.Call) {
		if c.NumParams < 1 {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "parameter is missing"))
			return
		}
		write, err := answer(c)
		if err != nil {
			c.Fail(f.refusal(err))
			return
		}
		c.Reply(write)
	}
}

var errStuck = &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node cannot keep what it promises", Retryable: true}

func (f *Former) onHello(c *rpc.Call) (func(*wire.Encoder), error) {
	var h hello
	if err := h.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSpeaker(f.cfg.Caller(c), h.Peer); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.takeHelloLocked(cmp.Or(h.RPC, "an address that it does not tell"), h, false); err != nil {
		f.refuse(h.Peer, err)
		return nil, err
	}
	if f.mu.err != nil {
		return nil, errStuck
	}
	mine := f.helloLocked()
	return mine.append, nil
}

func (f *Former) onPromise(c *rpc.Call) (func(*wire.Encoder), error) {
	var q promiseRequest
	if err := q.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSpeaker(f.cfg.Caller(c), q.founder); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkKey(q.founder, q.key); err != nil {
		f.refuse(q.founder, err)
		return nil, err
	}
	var acts []any
	answer := promiseAnswer{node: f.mu.self.ID, attempt: q.attempt, cluster: f.mu.cluster}
	if f.mu.cluster == "" {
		answer, acts = f.mu.machine.onPromise(q)
		f.takeLocked(acts)
	}
	if f.mu.err != nil {
		return nil, errStuck
	}
	return answer.append, nil
}

func (f *Former) onJoin(c *rpc.Call) (func(*wire.Encoder), error) {
	var q joinRequest
	if err := q.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSpeaker(f.cfg.Caller(c), q.Peer); err != nil {
		return nil, err
	}
	f.mu.Lock()
	cluster, err := f.mu.cluster, f.checkKey(q.Peer, q.key)
	f.mu.Unlock()
	switch {
	case err != nil:
	case cluster == "" || q.ID == "":
		return nil, &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node belongs to no cluster yet", Retryable: true}
	case q.cluster != cluster:
		err = &OtherClusterError{Address: q.RPC, Node: nodeText(q.Peer), Ours: cluster, Theirs: q.cluster}
	case f.cfg.Admit != nil:
		if refusal := f.cfg.Admit(c.Context(), q.Peer); errors.Is(refusal, context.DeadlineExceeded) || errors.Is(refusal, context.Canceled) {
			return nil, refusal
		} else if refusal != nil {
			err = &RefusedError{Reason: refusal.Error()}
		}
	}
	if err != nil {
		f.refuse(q.Peer, err)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("admitted a node", "node", nodeText(q.Peer), "id", q.ID, "rpc", q.RPC)
	a := joinAnswer{cluster: cluster, raftEpoch: f.mu.raftEpoch, members: append([]Peer{f.mu.self}, some(f.knownLocked(), membersMax-1)...)}
	return a.append, nil
}

// checkSpeaker refuses a node that speaks as another than its certificate says, if that is known.
func (f *Former) checkSpeaker(who string, as Peer) error {
	if who == "" || who == as.ID {
		return nil
	}
	err := &RefusedError{Address: as.RPC, Reason: fmt.Sprintf("node %s, by its certificate, says that it is node %.80q", who, as.ID)}
	f.refuse(as, err)
	return err
}

func (f *Former) checkKey(p Peer, key []byte) error {
	if f.knowsKey(key) {
		return nil
	}
	return &OtherKeyError{Address: p.RPC, Node: nodeText(p)}
}

// refuse says in the log who was refused and why, now and then.
func (f *Former) refuse(p Peer, err error) {
	if f.refusals.first(p.RPC, err) {
		f.log.Error("node refused", "rpc", p.RPC, "reason", err.Error())
	}
}

// Why a node is refused, as the error's detail "reason".
const (
	reasonCluster = "other_cluster"
	reasonKey     = "other_key"
	reasonRefused = "refused"
)

// refusal makes the error that the refused node gets.
func (f *Former) refusal(err error) error {
	var cluster *OtherClusterError
	var key *OtherKeyError
	var refused *RefusedError
	e := &rpc.Error{Code: rpc.CodePermissionDenied, Details: map[string]any{"node": nodeText(f.cfg.Self)}}
	switch {
	case errors.As(err, &cluster):
		e.Message, e.Details["reason"], e.Details["cluster"] = "node is of another cluster", reasonCluster, cluster.Ours
	case errors.As(err, &key):
		e.Message, e.Details["reason"] = "node has another gossip key", reasonKey
	case errors.As(err, &refused):
		e.Message, e.Details["reason"] = refused.Reason, reasonRefused
	default:
		return err
	}
	return e
}

// refusalOf makes the refusal by the node at addr, which came as an error of the
// wire, ours again.
func (f *Former) refusalOf(addr string, err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != rpc.CodePermissionDenied {
		return err
	}
	node, _ := e.Details["node"].(string)
	switch reason, _ := e.Details["reason"].(string); reason {
	case reasonCluster:
		theirs, _ := e.Details["cluster"].(string)
		f.mu.Lock()
		defer f.mu.Unlock()
		return &OtherClusterError{Address: addr, Node: node, Ours: f.mu.cluster, Theirs: theirs}
	case reasonKey:
		return &OtherKeyError{Address: addr, Node: node}
	case reasonRefused:
		return &RefusedError{Address: addr, Reason: e.Message}
	}
	return err
}

func badRequest(err error) error { return rpc.Errorf(rpc.CodeBadRequest, "%v", err) }

// nodeText names a node for people.
func nodeText(p Peer) string {
	return cmp.Or(p.Name, p.ID, "without a name")
}

const (
	quietFor = 10 * time.Minute // between two lines about one node
	quietMax = 1000             // nodes that are told apart
)

// quiet keeps the log from saying the same of a node again and again.
type quiet struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// first tells whether nothing of the kind was said lately of who is at addr.
func (q *quiet) first(addr string, err error) bool {
	of := fmt.Sprintf("%s %T", addr, err)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if t, ok := q.last[of]; ok && now.Sub(t) < quietFor {
		return false
	}
	if q.last == nil || len(q.last) >= quietMax {
		q.last = map[string]time.Time{}
	}
	q.last[of] = now
	return true
}
