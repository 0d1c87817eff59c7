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

// Handle registers the methods cluster.* with the node's server, before its first Serve. The server
// must serve before Run.
func (f *Service) Handle(s *rpc.Server) {
	s.Handle(MethodHello, rpc.Spawned, handler(f, f.onHello))
	s.Handle(MethodPromise, rpc.Spawned, handler(f, f.onPromise))
	s.Handle(MethodJoin, rpc.Spawned, handler(f, f.onJoin))
}

// handler returns an RPC handler that checks the number of parameters and answers.
func handler(f *Service, answer func(c *rpc.Call) (func(*wire.Encoder), error)) func(*rpc.Call) {
	return func(c *rpc.Call) {
		if c.NumParams < 1 {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "parameter is missing"))
			return
		}
		write, err := answer(c)
		if err != nil {
			c.Fail(f.rejection(err))
			return
		}
		c.Reply(write)
	}
}

var errNotStored = &rpc.Error{Code: rpc.CodeUnavailable, Message: "node cannot store its formation state", Retryable: true}

func (f *Service) onHello(c *rpc.Call) (func(*wire.Encoder), error) {
	var h hello
	if err := h.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSender(f.cfg.Caller(c), h.Peer); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.handleHelloLocked(cmp.Or(h.RPC, "an unknown address"), h, false); err != nil {
		f.logRejected(h.Peer, err)
		return nil, err
	}
	if f.mu.err != nil {
		return nil, errNotStored
	}
	mine := f.helloLocked()
	return mine.append, nil
}

func (f *Service) onPromise(c *rpc.Call) (func(*wire.Encoder), error) {
	var q promiseRequest
	if err := q.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSender(f.cfg.Caller(c), q.founder); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkKey(q.founder, q.key); err != nil {
		f.logRejected(q.founder, err)
		return nil, err
	}
	var acts []any
	answer := promiseAnswer{node: f.mu.members.self.ID, attempt: q.attempt, cluster: f.mu.cluster}
	if f.mu.cluster == "" {
		answer, acts = f.mu.machine.onPromise(q)
		f.applyLocked(acts)
	}
	if f.mu.err != nil {
		return nil, errNotStored
	}
	return answer.append, nil
}

func (f *Service) onJoin(c *rpc.Call) (func(*wire.Encoder), error) {
	var q joinRequest
	if err := q.decode(&c.Params); err != nil {
		return nil, badRequest(err)
	}
	if err := f.checkSender(f.cfg.Caller(c), q.Peer); err != nil {
		return nil, err
	}
	f.mu.Lock()
	cluster, err := f.mu.cluster, f.checkKey(q.Peer, q.key)
	f.mu.Unlock()
	switch {
	case err != nil:
	case cluster == "" || q.ID == "":
		return nil, &rpc.Error{Code: rpc.CodeUnavailable, Message: "node belongs to no cluster yet", Retryable: true}
	case q.cluster != cluster:
		err = &OtherClusterError{Address: q.RPC, Node: nodeText(q.Peer), Ours: cluster, Theirs: q.cluster}
	default:
		if err = f.admit(c.Context(), q.Peer); errors.Is(err, rpc.CodeUnavailable) {
			return nil, err
		}
	}
	if err != nil {
		f.logRejected(q.Peer, err)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("node admitted", "node", nodeText(q.Peer), "id", q.ID, "rpc", q.RPC)
	a := joinAnswer{cluster: cluster, raftEpoch: f.mu.raftEpoch, members: append([]Peer{f.mu.members.self}, sample(f.mu.members.known(), membersMax-1)...)}
	return a.append, nil
}

// admit calls Config.Admit. The error is a *RefusedError, or an *rpc.Error after which the node
// retries.
func (f *Service) admit(ctx context.Context, p Peer) error {
	if f.cfg.Admit == nil {
		return nil
	}
	err := f.cfg.Admit(ctx, p)
	var refused *RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &RefusedError{Address: cmp.Or(refused.Address, f.cfg.Self.RPC), Reason: refused.Reason}
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: err.Error(), Retryable: true}
}

// checkSender rejects a message in the name of another node than that of the caller's certificate.
// Peer is empty if unknown.
func (f *Service) checkSender(peer string, as Peer) error {
	if peer == "" || peer == as.ID {
		return nil
	}
	err := &RefusedError{Address: as.RPC, Reason: fmt.Sprintf("node %s, by its certificate, claims to be node %.80q", peer, as.ID)}
	f.logRejected(as, err)
	return err
}

func (f *Service) checkKey(p Peer, key []byte) error {
	if f.knowsKey(key) {
		return nil
	}
	return &OtherKeyError{Address: p.RPC, Node: nodeText(p)}
}

// logRejected logs a rejected node, rate-limited.
func (f *Service) logRejected(p Peer, err error) {
	if f.rejections.first(p.RPC, err) {
		f.log.Error("node rejected", "rpc", p.RPC, "reason", err.Error())
	}
}

// Reasons of a rejection, as the error's detail "reason".
const (
	reasonCluster = "other_cluster"
	reasonKey     = "other_key"
	reasonRefused = "refused"
)

// rejection returns the error to send to the rejected node.
func (f *Service) rejection(err error) error {
	var cluster *OtherClusterError
	var key *OtherKeyError
	var refused *RefusedError
	e := &rpc.Error{Code: rpc.CodePermissionDenied, Details: map[string]any{"node": nodeText(f.cfg.Self)}}
	switch {
	case errors.As(err, &cluster):
		e.Message, e.Details["reason"], e.Details["cluster"] = "node belongs to another cluster", reasonCluster, cluster.Ours
	case errors.As(err, &key):
		e.Message, e.Details["reason"] = "node has another gossip key", reasonKey
	case errors.As(err, &refused):
		e.Message, e.Details["reason"] = refused.Reason, reasonRefused
	default:
		return err
	}
	return e
}

// decodeRejection converts an RPC error of the node at addr that reports a rejection back to its
// type.
func (f *Service) decodeRejection(addr string, err error) error {
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

// nodeText names a node in messages.
func nodeText(p Peer) string {
	return cmp.Or(p.Name, p.ID, "without a name")
}

const (
	logPeriod  = 10 * time.Minute // between two lines of one kind about one node
	logKeysMax = 1000             // kinds and nodes remembered
)

// logLimiter suppresses repeated log lines about a node.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// first reports whether no error of that type was logged for addr in the last logPeriod.
func (q *logLimiter) first(addr string, err error) bool {
	of := fmt.Sprintf("%s %T", addr, err)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if t, ok := q.last[of]; ok && now.Sub(t) < logPeriod {
		return false
	}
	if q.last == nil || len(q.last) >= logKeysMax {
		q.last = map[string]time.Time{}
	}
	q.last[of] = now
	return true
}
