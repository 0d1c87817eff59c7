package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Client asks whichever server leads. It is safe for concurrent use; any number of
// sessions share it and its connections.
//
// A call that its server refused to begin is made again, elsewhere, as long as its
// context and Config.RetryTimeMax allow. A change that may have been made is made
// again only where that is the same as once; otherwise the error is
// api.ErrOutcomeUnknown.
type Client struct {
	cfg     Config
	leaders *leaders
}

// NewClient returns a Client. It connects when it is first used.
func NewClient(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg}
	c.leaders = newLeaders(&c.cfg)
	return c, nil
}

// Close ends the connections. Sessions must be closed before.
func (c *Client) Close() error {
	c.leaders.close()
	return nil
}

// LeaderAddress returns where the server answers that is believed to lead, empty when
// it is not known. It asks nobody.
func (c *Client) LeaderAddress() string { return c.leaders.at() }

// Get returns the file at path, as the leader has it. See Session.Get for one that
// caches.
func (c *Client) Get(ctx context.Context, path string) (f api.File, err error) {
	err = c.read(ctx, func(s api.Service) error {
		f, _, err = s.Get(ctx, path, 0)
		return err
	})
	return f, err
}

// GetStale returns the file at path as some server has it: perhaps of some time ago,
// but also when there is no leader.
func (c *Client) GetStale(ctx context.Context, path string) (f api.File, err error) {
	err = c.read(ctx, func(s api.Service) error {
		f, err = s.GetStale(ctx, path)
		return err
	})
	return f, err
}

// Stat returns what is known of the node at path.
func (c *Client) Stat(ctx context.Context, path string) (st api.Stat, err error) {
	err = c.read(ctx, func(s api.Service) error {
		st, err = s.Stat(ctx, path)
		return err
	})
	return st, err
}

// List returns the children of a directory, in byte order of their names.
func (c *Client) List(ctx context.Context, dir string) (all []api.Stat, err error) {
	err = c.read(ctx, func(s api.Service) error {
		all, err = s.List(ctx, dir)
		return err
	})
	return all, err
}

// CheckSequencer returns nil if the sequencer is valid, api.ErrStale if not.
func (c *Client) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return c.read(ctx, func(s api.Service) error { return s.CheckSequencer(ctx, q) })
}

// Set writes a file if its content generation is gen, and returns the new one.
// Generation 0 stands for a file that does not exist, api.AnyGeneration for
// whatever is there.
//
// When it is not known whether the first attempt was made, one with a generation of
// its own is made again: no generation comes twice, so at most one of the two can
// succeed. If the second is then refused, only an ephemeral file tells, by its session
// and its content, whose it is; else the error is api.ErrOutcomeUnknown.
func (c *Client) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (made uint64, err error) {
	again := gen != 0 && gen != api.AnyGeneration
	unknown, err := c.do(ctx, again, func(s api.Service) error {
		made, err = s.Set(ctx, path, data, gen, o)
		return err
	})
	if err == nil || !unknown {
		return made, err
	}
	if o.Ephemeral && gen == 0 {
		// Nobody else makes ephemeral files of this session, and once made this one
		// stands until the session deletes it. One with other content was there before.
		if f, lookErr := c.Get(ctx, path); lookErr == nil && f.Ephemeral == o.Session && o.Session != 0 && bytes.Equal(f.Data, data) {
			return f.Generation, nil
		}
	}
	return 0, unknownOutcome(err)
}

// Delete removes a file or empty directory if its generation is gen. Of o it heeds
// Session and Guard. It is repeated as Set is.
func (c *Client) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	unknown, err := c.do(ctx, gen != api.AnyGeneration, func(s api.Service) error { return s.Delete(ctx, path, gen, o) })
	if err != nil && unknown {
		return unknownOutcome(err)
	}
	return err
}

// SetACL gives a node another ACL name, and returns the new ACL generation.
func (c *Client) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (gen uint64, err error) {
	_, err = c.do(ctx, false, func(s api.Service) error {
		gen, err = s.SetACL(ctx, path, acl, o)
		return err
	})
	return gen, err
}

// unknownOutcome makes err an api.ErrOutcomeUnknown: an earlier attempt may have been
// made.
func unknownOutcome(err error) error {
	if errors.Is(err, api.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w; then: %w", api.ErrOutcomeUnknown, err)
}

func (c *Client) read(ctx context.Context, f func(api.Service) error) error {
	_, err := c.do(ctx, true, f)
	return err
}

// do makes a call, and makes it again where that is allowed: refused ones always,
// those of unknown outcome if again is true. It tells whether the outcome of any
// attempt is unknown.
func (c *Client) do(ctx context.Context, again bool, f func(api.Service) error) (unknown bool, err error) {
	r := retrier{started: time.Now(), most: c.cfg.RetryTimeMax}
	for {
		moved := false
		p, err := c.leaders.get(ctx)
		if err == nil {
			c.leaders.begin(p)
			err = f(p.Service)
			p.over(err == nil || ctx.Err() == nil)
			if err == nil {
				return unknown, nil
			}
			moved = c.leaders.failed(p, err)
			if errors.Is(err, api.ErrClosed) { // that server stops
				err = fmt.Errorf("%w: %w", api.ErrNotReady, err)
			}
		}
		doubt := errors.Is(err, api.ErrOutcomeUnknown)
		unknown = unknown || doubt
		if doubt && !again || !doubt && !errors.Is(err, api.ErrNotReady) || ctx.Err() != nil {
			return unknown, err
		}
		if !r.wait(ctx, moved) {
			return unknown, err
		}
	}
}

// hintsMax is how many times in a row a server's word on who leads is followed
// without a pause: two servers may each think that it is the other.
const hintsMax = 2

// retrier paces the attempts of one call.
type retrier struct {
	started time.Time
	most    time.Duration
	hints   int
	pause   time.Duration
}

// wait waits before another attempt, or returns false if there must be none.
func (r *retrier) wait(ctx context.Context, moved bool) bool {
	if moved && r.hints < hintsMax {
		r.hints++
		return ctx.Err() == nil
	}
	r.hints = 0
	pause := r.next()
	if time.Since(r.started)+pause > r.most {
		return false
	}
	if at, ok := ctx.Deadline(); ok && time.Until(at) < pause {
		return false
	}
	return sleep(ctx, pause)
}

// next returns the next pause: 25 ms at first, since an election is short, doubling
// to 1 s, each half more or less by chance, so that those who lost the same leader
// do not come back together.
func (r *retrier) next() time.Duration {
	r.pause = min(max(2*r.pause, 25*time.Millisecond), time.Second)
	return r.pause/2 + rand.N(r.pause)
}

// sleep waits for d and returns true, or false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
