package formation

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// call asks one question over a connection of its own: they are few. It returns which node has answered, by its
// certificate if it has shown one.
func (f *Former) call(ctx context.Context, addr, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) (who string, err error) {
	cfg := rpc.ConnConfig{MessageBytesMax: messageBytesMax, Dialer: f.cfg.Dialer}
	if cfg.Dialer != nil {
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := f.cfg.Dialer(ctx, addr)
			if s, ok := c.(*pki.Conn); ok && err == nil {
				who = s.Peer.Name
			}
			return c, err
		}
	}
	c, err := rpc.Dial(ctx, addr, cfg)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return who, c.Call(ctx, method, func(e *wire.Encoder) {
		e.Array(1)
		params(e)
	}, result)
}

// messageBytesMax holds a hello with freshMax nodes.
const messageBytesMax = 8 << 20

// greetLocked says hello to who is at an address.
func (f *Former) greetLocked(addr string) {
	if addr == "" {
		return
	}
	f.questionLocked(MethodHello, addr, func(ctx context.Context) { f.greet(ctx, addr) })
}

func (f *Former) greet(ctx context.Context, addr string) {
	f.mu.Lock()
	mine := f.helloLocked()
	f.mu.Unlock()
	var theirs hello
	who, err := f.call(ctx, addr, MethodHello, mine.append, theirs.decode)
	if err == nil {
		err = f.checkSpeaker(who, theirs.Peer)
	}
	if err == nil {
		f.mu.Lock()
		err = f.takeHelloLocked(addr, theirs, true)
		f.mu.Unlock()
	} else {
		err = f.refusalOf(addr, err)
	}
	f.judge(addr, err)
}

// judge notes whether the node at an address is one of ours, as far as is known.
func (f *Former) judge(addr string, err error) {
	var cluster *OtherClusterError
	var key *OtherKeyError
	var peer *pki.PeerError
	refused := errors.As(err, &cluster) || errors.As(err, &key)
	f.mu.Lock()
	if _, was := f.mu.wrong[addr]; err == nil && was {
		delete(f.mu.wrong, addr)
	} else if refused && f.seedLocked(addr) {
		f.mu.wrong[addr] = err
		f.wake()
	}
	f.mu.Unlock()
	switch {
	case refused:
		if f.refusals.first(addr, err) {
			f.log.Error("node refused", "rpc", addr, "reason", err.Error())
		}
	case errors.Is(err, rpc.ErrWantsTLS):
		if f.refusals.first(addr, err) {
			f.log.Warn("what answers there is of a cluster with certificates, and this node has none: --token-file has it join by a token", "rpc", addr)
		}
	case errors.As(err, &peer):
		if f.refusals.first(addr, err) {
			f.log.Warn("what answers there has no certificate that this node takes: it may be of another cluster, or a clock is wrong",
				"rpc", addr, "error", err)
		}
	case pki.IsAlert(err):
		if f.refusals.first(addr, err) {
			f.log.Warn("what answers there does not take this node's certificate: it may be of another cluster, this node may have been removed, or a clock is wrong",
				"rpc", addr, "error", err)
		}
	case errors.Is(err, rpc.ErrPreamble) || errors.Is(err, syscall.ECONNRESET):
		if f.refusals.first(addr, err) {
			f.log.Warn("what answers there does not speak as nodes do; --join takes the address of --listen, not that of --gossip or --http",
				"rpc", addr, "error", err)
		}
	case err != nil:
		f.log.Debug("no answer", "rpc", addr, "error", err)
	}
}

func (f *Former) askPromise(ctx context.Context, a actPromise) {
	f.mu.Lock()
	a.request.founder = f.mu.self // its addresses may have become known since
	f.mu.Unlock()
	var answer promiseAnswer
	who, err := f.call(ctx, a.to, MethodPromise, a.request.append, answer.decode)
	if err == nil {
		err = f.checkSpeaker(who, Peer{ID: answer.node, RPC: a.to})
	}
	if err != nil {
		f.judge(a.to, f.refusalOf(a.to, err))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.cluster == "" {
		f.takeLocked(f.mu.machine.promiseAnswered(answer))
	}
}

func (f *Former) askJoin(ctx context.Context, a actAskJoin) {
	f.mu.Lock()
	q := joinRequest{Peer: f.mu.self, cluster: a.cluster, key: f.keys[0]}
	f.mu.Unlock()
	var answer joinAnswer
	_, err := f.call(ctx, a.to, MethodJoin, q.append, answer.decode)
	err = f.refusalOf(a.to, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) && f.mu.cluster == "" {
			f.mu.err = err
			f.wake()
		}
		f.log.Debug("not admitted yet", "rpc", a.to, "error", err)
		return
	}
	if f.mu.cluster != "" {
		return
	}
	for _, p := range answer.members {
		if p.ID != f.mu.self.ID && !f.cfg.Removed(p.ID) {
			f.mu.heard[p.ID] = p
		}
	}
	f.mu.raftEpoch = max(f.mu.raftEpoch, answer.raftEpoch)
	f.takeLocked(f.mu.machine.joinAnswered(answer))
}
