package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/netlab"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// locks is the number of locks; the last one is acquired in both modes, the others exclusively.
const locks = 6

// useLocks acquires locks, shows them to the judge, and releases them.
func (c *lockClient) useLocks(r *rand.Rand) {
	for c.ctx.Err() == nil {
		s := c.session(r, "locks")
		if s == nil {
			return
		}
		for held := false; !held && c.ctx.Err() == nil && s.Err() == nil; c.pause(r, 50*time.Millisecond) {
			held = c.useLock(r, s)
		}
		_ = c.end(s) // after an error it ends with its lease
	}
}

// useLock reports whether it left the lock to be released by the session's end.
func (c *lockClient) useLock(r *rand.Rand, s *session.Session) (held bool) {
	which := r.IntN(locks)
	mode := api.Exclusive
	if which == locks-1 && r.IntN(3) > 0 {
		mode = api.Shared
	}
	o := session.LockOptions{Try: r.IntN(5) == 0}
	if r.IntN(2) == 0 {
		o.Delay = time.Duration(r.Int64N(int64(time.Second)))
	}
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond+time.Duration(r.Int64N(int64(5*time.Second))))
	defer cancel()
	l, err := s.Acquire(ctx, fmt.Sprintf("%s/%d", locksDir, which), mode, o)
	if err != nil {
		return false
	}
	h := hold{Number: c.number.Add(1), Lock: l.Path(), Shared: mode == api.Shared, Session: uint64(s.ID()), Gen: l.Generation()}
	c.put(entry{At: now(), Hold: &h})
	c.count(func(t *tallies) { t.Holds++ })
	length := 200 * time.Millisecond
	if r.IntN(4) == 0 {
		length = 4 * time.Second // long enough for faults
	}
	c.believe(r, s, l, h, now()+r.Int64N(int64(length)))
	if r.IntN(10) == 0 {
		return true
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), farewell)
	defer cancel()
	if err := l.Release(bye); err == nil && s.Err() == nil && mode == api.Exclusive {
		if err := c.lib.CheckSequencer(bye, l.Sequencer()); err == nil {
			c.bad("sequencer %v is valid though the lock was released", l.Sequencer())
		}
	}
	return false
}

// believe records how long the lock is believed to be held, and checks sequencers meanwhile.
func (c *lockClient) believe(r *rand.Rand, s *session.Session, l *session.Lock, h hold, until int64) {
	for now() < until && c.ctx.Err() == nil && s.Err() == nil {
		at := now()
		if l.Held() {
			c.put(entry{At: at, Held: h.Number})
		}
		switch r.IntN(8) {
		case 0, 1, 2:
			if verdict := c.show(h); verdict == refused && l.Held() {
				c.bad("the judge has seen a later holder, but %+v is believed in", h)
			}
		case 3:
			ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
			if err := c.lib.CheckSequencer(ctx, l.Sequencer()); errors.Is(err, api.ErrStale) && l.Held() {
				c.bad("sequencer %v is stale, but its holder believes in it", l.Sequencer())
			}
			cancel()
		}
		c.pause(r, 20*time.Millisecond)
	}
}

// verdict is the answer of the judge.
type verdict string

const (
	accepted verdict = "accepted"
	refused  verdict = "refused"
	absent   verdict = "absent" // the judge was not reached
)

// show shows the judge a hold.
func (c *lockClient) show(h hold) verdict {
	conn, err := net.DialTimeout("tcp", c.Judge, time.Second)
	if err != nil {
		return absent
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return absent
	}
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		return absent
	}
	output, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return absent
	}
	return verdict(output[:len(output)-1])
}

// judge is a process outside the lock service that only receives sequencers. It rejects generations
// lower than one that it has seen.
type judge struct {
	listener net.Listener

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		last   map[string]hold
		counts map[verdict]int
		bad    []string
	}
}

// startJudge runs a judge on a host until the test ends.
func startJudge(t *testing.T, h *netlab.Host, port uint16) *judge {
	t.Helper()
	l, err := h.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{listener: l}
	j.mu.last, j.mu.counts = map[string]hold{}, map[verdict]int{}
	t.Cleanup(func() { l.Close() })
	go j.listen()
	return j
}

func (j *judge) listen() {
	for {
		conn, err := j.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a client may pause
			var h hold
			if err := json.NewDecoder(conn).Decode(&h); err == nil {
				fmt.Fprintf(conn, "%s\n", j.weigh(h))
			}
		}()
	}
}

func (j *judge) weigh(h hold) (v verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := j.mu.last[h.Lock]
	v = accepted
	switch {
	case h.Gen < last.Gen:
		v = refused
	case h.Gen == last.Gen && h.Session != last.Session && !(h.Shared && last.Shared):
		j.mu.bad = append(j.mu.bad, fmt.Sprintf("two holders of one generation: %+v and %+v", last, h))
	}
	j.mu.counts[v]++
	if v == accepted {
		j.mu.last[h.Lock] = h
	}
	return v
}

// findings returns violations of FL3, and the numbers of accepted and rejected sequencers.
func (j *judge) findings() (bad []string, accepts, refusals int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.bad, j.mu.counts[accepted], j.mu.counts[refused]
}
