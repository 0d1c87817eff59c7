package session

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// answersMax bounds the answers that wait for the keepalive goroutine. Beyond it, answers of
// KeepAlives that were abandoned long ago may be lost.
const answersMax = 16

// answer is the outcome of a KeepAlive.
type answer struct {
	number uint64
	sent   time.Duration // on the session's clock, before the KeepAlive was sent
	resp   api.KeepAliveResponse
	err    error
}

// keepalive is the keepalive goroutine of a session: it sends KeepAlives, and processes the leases and
// events in their answers. Only that goroutine uses its fields.
type keepalive struct {
	*Session
	first  chan struct{} // closed after the first answer; then nil
	number uint64        // number of the last KeepAlive
	term   uint64        // term of the last answer
	acked  uint64        // the last event processed, in that term
}

// Fractions of the lease. The leader may delay the answer of a KeepAlive for hangShare, so that
// 100,000 sessions send as few as possible. The client waits waitShare longer for the answer. With
// both clocks off by 5 %, a fifth of the lease is then left to reach another server.
const (
	hangShare = 0.4
	waitShare = 0.25
)

func share(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }

func (k *keepalive) run() {
	var r retrier
	for k.ctx.Err() == nil {
		p, err := k.client.leaders.get(k.ctx)
		moved, ok := false, false
		if err == nil {
			ok, moved = k.send(p)
		}
		switch {
		case ok:
			r = retrier{}
		case moved && r.hints < hintsMax:
			r.hints++
		default:
			r.hints = 0
			timing.Sleep(k.ctx, min(r.next(), share(k.lease, waitShare)))
		}
	}
}

// send sends one KeepAlive and waits for its answer. ok is set if the next one needs no pause. moved
// is set if another server should be tried at once.
func (k *keepalive) send(p *peer) (ok, moved bool) {
	k.number++
	wait := share(k.lease, waitShare)
	req := api.KeepAliveRequest{Session: k.id, Term: k.term, Acked: k.acked}
	sent := k.clock.Now()
	if k.first == nil && k.mayHang(sent) {
		req.Hang = share(k.lease, hangShare)
	}
	number := k.number
	ctx, cancel := context.WithTimeout(k.ctx, wait)
	defer cancel()
	p.Service.KeepAlive(ctx, req, func(resp api.KeepAliveResponse, err error) {
		select {
		case k.answers <- answer{number, sent, resp, err}:
		default:
		}
	})
	fired, stop := k.clock.Timer(req.Hang + wait)
	defer stop()
	for {
		select {
		case a := <-k.answers:
			if a.number != number {
				k.processLate(a)
				continue
			}
			if a.err != nil {
				return false, k.processError(p, a.err)
			}
			news, now := k.process(a), k.clock.Now()
			// If the leader answers early without news, the next KeepAlive waits.
			hung := req.Hang > 0 && now-sent >= req.Hang/4
			return news || hung || req.Hang == 0 && k.mayHang(now), false
		case <-fired:
			k.client.leaders.suspect(p, k.lease)
			return false, true
		case <-k.ctx.Done():
			return false, false
		}
	}
}

// mayHang reports whether enough of the lease is left at now for a KeepAlive whose answer is
// delayed.
func (k *keepalive) mayHang(now time.Duration) bool {
	return time.Duration(k.end.Load())-now > share(k.lease, hangShare+waitShare)
}

// processLate processes the answer of an abandoned KeepAlive. The lease in it is valid.
func (k *keepalive) processLate(a answer) {
	if a.err == nil {
		k.process(a)
	} else if errors.Is(a.err, api.ErrNoSession) {
		k.expire("the leader does not know it")
	}
}

// processError processes the error of a KeepAlive.
func (k *keepalive) processError(p *peer, err error) (moved bool) {
	switch {
	case errors.Is(err, api.ErrNoSession):
		k.expire("the leader does not know it")
	case errors.Is(err, api.ErrSuperseded): // by an abandoned KeepAlive that arrived late
	default:
		return k.client.leaders.failed(p, err)
	}
	return false
}

// process processes an answer: first its events, because they end what the session relies on, then its
// lease. It reports whether there was anything new to acknowledge.
func (k *keepalive) process(a answer) (news bool) {
	if a.resp.Term < k.term {
		return false // from a former leader
	}
	if a.resp.Term > k.term {
		// Everything that the old leader permitted is dropped before the new term is acknowledged.
		k.cache.newTerm(a.resp.Term)
		k.term, k.acked, news = a.resp.Term, 0, true
	}
	for i := range a.resp.Events {
		number := a.resp.First + uint64(i)
		if number <= k.acked {
			continue
		}
		if number != k.acked+1 && a.resp.Events[i].Kind != api.FailedOver {
			k.failedOver(number) // events are missing
		}
		k.event(&a.resp.Events[i], number)
		k.acked, news = number, true
	}
	if planted.On(planted.LeaseFromAnswer) {
		a.sent = k.clock.Now()
	}
	if a.resp.Lease > 0 && !k.renew(a.sent+api.LocalLease(a.resp.Lease)) {
		return false
	}
	if k.first != nil {
		close(k.first)
		k.first = nil
	}
	return news
}

func (k *keepalive) event(v *api.Event, number uint64) {
	switch v.Kind {
	case api.CacheInvalid:
		k.cache.invalidate(v.Path, number)
	case api.FailedOver:
		k.failedOver(number)
	default:
		k.watches.deliver(v)
	}
}

// failedOver handles missed events: the leader knows the session's locks, but none of its watches
// and nothing about its cache.
func (k *keepalive) failedOver(number uint64) {
	k.cache.empty(number)
	k.watches.reset()
}
