package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// Client calls the server that leads the lock service. It is safe for concurrent use; any number of
// sessions share it and its connections.
//
// A call that a server rejected before executing it is retried, on another server if necessary, as
// long as its context and Config.RetryTimeMax allow. A change that may have been made is retried
// only where making it twice has the same effect; otherwise the error is api.ErrOutcomeUnknown.
type Client struct {
	cfg     Config
	leaders *leaders
}

// NewClient returns a Client. It connects on first use.
func NewClient(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg}
	c.leaders = newLeaders(&c.cfg)
	return c, nil
}

// Close closes the connections. Sessions must be closed before.
func (c *Client) Close() error {
	c.leaders.close()
	return nil
}

// LeaderAddress returns the address of the server that is believed to lead, empty if unknown. It
// makes no call.
func (c *Client) LeaderAddress() string { return c.leaders.address() }

// Get returns the file at path from the leader. Session.Get uses a cache.
func (c *Client) Get(ctx context.Context, path string) (f api.File, err error) {
	err = c.read(ctx, func(s api.Service) error {
		f, _, err = s.Get(ctx, path, 0)
		return err
	})
	return f, err
}

// GetStale returns the file at path from any server. It may be out of date, but is available
// without a leader.
func (c *Client) GetStale(ctx context.Context, path string) (f api.File, err error) {
	err = c.read(ctx, func(s api.Service) error {
		f, err = s.GetStale(ctx, path)
		return err
	})
	return f, err
}

// Stat describes the node at path.
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

// readDirectory returns a page of a directory.
func (c *Client) readDirectory(ctx context.Context, dir string, o api.DirectoryOptions) (p api.DirectoryPage, err error) {
	err = c.read(ctx, func(s api.Service) error {
		p, err = s.ReadDirectory(ctx, dir, o)
		return err
	})
	return p, err
}

// CheckSequencer returns nil if the sequencer is valid, api.ErrStale if not.
func (c *Client) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return c.read(ctx, func(s api.Service) error { return s.CheckSequencer(ctx, q) })
}

// Set writes a file if its content generation is gen, and returns the new one. Zero requires that
// the file does not exist; api.AnyGeneration matches any state.
//
// If the outcome of the first attempt is unknown, a Set with a specific generation is retried:
// generations are not reused, so at most one of the two attempts can succeed. If the second is then
// rejected, only the session and the content of an ephemeral file can show that the first
// succeeded; otherwise the error is api.ErrOutcomeUnknown.
func (c *Client) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (made uint64, err error) {
	again := gen != 0 && gen != api.AnyGeneration || o.From != "" // which has a generation
	unknown, err := c.do(ctx, again, func(s api.Service) error {
		made, err = s.Set(ctx, path, data, gen, o)
		return err
	})
	if err == nil || !unknown {
		return made, err
	}
	if o.Ephemeral && gen == 0 {
		// Only this session creates its ephemeral files, and the file stays until the session
		// deletes it. A file with different content existed before.
		if f, lookErr := c.Get(ctx, path); lookErr == nil && f.Ephemeral == o.Session && o.Session != 0 && bytes.Equal(f.Data, data) {
			return f.Generation, nil
		}
	}
	return 0, unknownOutcome(err)
}

// Delete removes a file or an empty directory if its generation is gen. It uses Session and Guard
// of o. It is retried as Set is.
func (c *Client) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	unknown, err := c.do(ctx, gen != api.AnyGeneration, func(s api.Service) error { return s.Delete(ctx, path, gen, o) })
	if err != nil && unknown {
		return unknownOutcome(err)
	}
	return err
}

// SetACL sets the ACL name of a node, and returns the new ACL generation.
func (c *Client) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (gen uint64, err error) {
	_, err = c.do(ctx, false, func(s api.Service) error {
		gen, err = s.SetACL(ctx, path, acl, o)
		return err
	})
	return gen, err
}

// unknownOutcome wraps err in api.ErrOutcomeUnknown, because an earlier attempt may have succeeded.
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

// do makes a call and retries it where that is allowed: always if the call was rejected before
// execution, and if again is set also if its outcome is unknown. unknown is set if the outcome of
// any attempt is unknown.
func (c *Client) do(ctx context.Context, again bool, f func(api.Service) error) (unknown bool, err error) {
	r := retrier{started: time.Now(), most: c.cfg.RetryTimeMax}
	for {
		moved := false
		p, err := c.leaders.get(ctx)
		if err == nil {
			c.leaders.callBegan(p)
			err = f(p.Service)
			p.callEnded(err == nil || ctx.Err() == nil)
			if err == nil {
				return unknown, nil
			}
			moved = c.leaders.failed(p, err)
			if errors.Is(err, api.ErrClosed) { // that server is stopping
				err = fmt.Errorf("%w: %w", api.ErrNotReady, err)
			}
		}
		outcomeUnknown := errors.Is(err, api.ErrOutcomeUnknown)
		unknown = unknown || outcomeUnknown
		if outcomeUnknown && !again || !outcomeUnknown && !errors.Is(err, api.ErrNotReady) || ctx.Err() != nil {
			return unknown, err
		}
		if !r.wait(ctx, moved) {
			return unknown, err
		}
	}
}

// hintsMax bounds how many leader hints in a row are followed without a pause: two servers may name
// each other.
const hintsMax = 2

// retrier paces the attempts of one call.
type retrier struct {
	started time.Time
	most    time.Duration
	hints   int
	pause   time.Duration
}

// wait waits before another attempt. It returns false if no further attempt is allowed.
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
	return timing.Sleep(ctx, pause) == nil
}

// next returns the next pause. It begins with 25 ms, because an election is short, and doubles up
// to 1 s. Half of each pause up or down is random, so that clients that lost the same leader do not
// return together.
func (r *retrier) next() time.Duration {
	r.pause = min(max(2*r.pause, 25*time.Millisecond), time.Second)
	return r.pause/2 + rand.N(r.pause)
}
