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

// call makes one call over a connection of its own, since calls are few. It returns the id of the
// peer by its certificate; empty without one.
func (f *Service) call(ctx context.Context, addr, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) (peer string, err error) {
	cfg := rpc.ConnConfig{MessageBytesMax: messageBytesMax, Dialer: f.cfg.Dialer}
	if cfg.Dialer != nil {
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := f.cfg.Dialer(ctx, addr)
			if s, ok := c.(*pki.Conn); ok && err == nil {
				peer = s.Peer.Name
			}
			return c, err
		}
	}
	c, err := rpc.Dial(ctx, addr, cfg)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return peer, c.Call(ctx, method, func(e *wire.Encoder) {
		e.Array(1)
		params(e)
	}, result)
}

// messageBytesMax fits a hello with freshMax nodes.
const messageBytesMax = 8 << 20

// sendHelloLocked starts a hello to an address.
func (f *Service) sendHelloLocked(addr string) {
	if addr == "" {
		return
	}
	f.callLocked(MethodHello, addr, func(ctx context.Context) { f.exchangeHello(ctx, addr) })
}

func (f *Service) exchangeHello(ctx context.Context, addr string) {
	f.mu.Lock()
	mine := f.helloLocked()
	f.mu.Unlock()
	var theirs hello
	peer, err := f.call(ctx, addr, MethodHello, mine.append, theirs.decode)
	if err == nil {
		err = f.checkSender(peer, theirs.Peer)
	}
	if err == nil {
		f.mu.Lock()
		err = f.handleHelloLocked(addr, theirs, true)
		f.mu.Unlock()
	} else {
		err = f.decodeRejection(addr, err)
	}
	f.noteOutcome(addr, err)
}

// noteOutcome records whether the node at an address may belong to this cluster, and logs why not.
func (f *Service) noteOutcome(addr string, err error) {
	var cluster *OtherClusterError
	var key *OtherKeyError
	var peer *pki.PeerError
	refused := errors.As(err, &cluster) || errors.As(err, &key)
	f.mu.Lock()
	reason := err
	if errors.Is(err, rpc.ErrWantsTLS) && f.mu.cluster == "" {
		reason, refused = &NoCertificateError{addr}, true
	}
	if _, was := f.mu.foreign[addr]; err == nil && was {
		delete(f.mu.foreign, addr)
	} else if refused && f.seedLocked(addr) {
		f.mu.foreign[addr] = reason
		f.wake()
	}
	f.mu.Unlock()
	switch {
	case errors.Is(err, rpc.ErrWantsTLS):
		if f.rejections.first(addr, err) {
			f.log.Warn("peer requires certificates, and this node has none: join with --token-file", "rpc", addr)
		}
	case refused:
		if f.rejections.first(addr, err) {
			f.log.Error("node rejected", "rpc", addr, "reason", err.Error())
		}
	case errors.As(err, &peer):
		if f.rejections.first(addr, err) {
			f.log.Warn("peer certificate not accepted: it may be of another cluster, or a clock is wrong",
				"rpc", addr, "err", err)
		}
	case pki.IsAlert(err):
		if f.rejections.first(addr, err) {
			f.log.Warn("peer rejects this node's certificate: it may be in another cluster, this node may have been removed, or a clock is wrong",
				"rpc", addr, "err", err)
		}
	case errors.Is(err, rpc.ErrPreamble) || errors.Is(err, syscall.ECONNRESET):
		if f.rejections.first(addr, err) {
			f.log.Warn("peer does not speak the node protocol: --join takes the address of --listen, not that of --gossip or --http",
				"rpc", addr, "err", err)
		}
	case err != nil:
		f.log.Debug("no answer", "rpc", addr, "err", err)
	}
}

func (f *Service) requestPromise(ctx context.Context, a actPromise) {
	f.mu.Lock()
	a.request.founder = f.mu.members.self // the founder's addresses may have become known since
	f.mu.Unlock()
	var answer promiseAnswer
	peer, err := f.call(ctx, a.to, MethodPromise, a.request.append, answer.decode)
	if err == nil {
		err = f.checkSender(peer, Peer{ID: answer.node, RPC: a.to})
	}
	if err != nil {
		f.noteOutcome(a.to, f.decodeRejection(a.to, err))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.cluster == "" {
		f.applyLocked(f.mu.machine.promiseAnswered(answer))
	}
}

// errNotAdmitted is the log limiter's key for the warning that a member does not admit this node yet.
var errNotAdmitted = errors.New("not admitted yet")

// requestJoin asks a member to admit this node. Only a refusal ends Run: the next round asks again
// after any other error.
func (f *Service) requestJoin(ctx context.Context, a actAskJoin) {
	f.mu.Lock()
	q := joinRequest{Peer: f.mu.members.self, cluster: a.cluster, key: f.keys[0]}
	f.mu.Unlock()
	var answer joinAnswer
	_, err := f.call(ctx, a.to, MethodJoin, q.append, answer.decode)
	err = f.decodeRejection(a.to, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) && f.mu.cluster == "" {
			f.mu.err = err
			f.wake()
		}
		f.mu.notAdmitted = err
		if refused == nil && f.rejections.first(a.to, errNotAdmitted) {
			f.log.Warn("not admitted yet; retrying", "rpc", a.to, "err", err)
		}
		return
	}
	if f.mu.cluster != "" {
		return
	}
	f.mu.members.join(answer.members)
	f.mu.raftEpoch = max(f.mu.raftEpoch, answer.raftEpoch)
	f.applyLocked(f.mu.machine.joinAnswered(answer))
}
