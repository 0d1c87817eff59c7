package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
)

// Directories that clients use.
const (
	filesDir     = "/faults/files"
	locksDir     = "/faults/locks"
	ephemeralDir = "/faults/ephemeral"
)

// clientConfig configures a client process, as JSON in configEnv. The process ends with its
// standard input.
type clientConfig struct {
	Number  int
	Seed    uint64
	Servers []string
	// Credential is the file with a node's credential, which permits all operations on the lock
	// service.
	Credential string
	Judge      string // address of the judge
	History    string // an existing file: a client may be killed before it does anything
}

const configEnv = "FAULTS_CLIENT"

// Workers of one client process.
const (
	registerWorkers = 2
	lockWorkers     = 3
	cacheWorkers    = 2
	aloneWorkers    = 2
)

// lockClient is a process that uses the lock service.
type lockClient struct {
	clientConfig
	recorder
	lib *session.Client
	// sessionless is used without sessions, so it is not notified of a silent leader.
	sessionless *session.Client
	number      atomic.Int64 // of operations, holds, and values
	ctx         context.Context

	counts struct {
		sync.Mutex
		tallies
	}
}

func (c *lockClient) count(f func(*tallies)) {
	c.counts.Lock()
	defer c.counts.Unlock()
	f(&c.counts.tallies)
}

func runClient() int {
	c := &lockClient{}
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), &c.clientConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if c.file, err = os.OpenFile(c.History, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	credential, err := pki.ReadCredential(c.Credential)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dial := dialer(pki.NewEndpoint(credential, pki.Options{}))
	for _, lib := range []**session.Client{&c.lib, &c.sessionless} {
		*lib, err = session.NewClient(session.Config{Locator: session.Addresses(c.Servers), Dial: dial, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = ctx
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // blocks until standard input is closed
		cancel()
	}()
	var workers sync.WaitGroup
	for i := range registerWorkers {
		workers.Go(func() { c.useRegisters(c.rand(i), c.lib) })
	}
	for i := range aloneWorkers {
		workers.Go(func() { c.useRegisters(c.rand(300+i), c.sessionless) })
	}
	workers.Go(func() { c.useCache() })
	for i := range lockWorkers {
		workers.Go(func() { c.useLocks(c.rand(100 + i)) })
	}
	workers.Go(func() { c.useEphemerals(c.rand(200)) })
	workers.Wait()
	if err := errors.Join(c.lib.Close(), c.sessionless.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c.put(entry{At: now(), Tell: &c.counts.tallies})
	return 0
}

func (c *lockClient) rand(worker int) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<32|uint64(worker)))
}

// pause waits for a random time below the bound, or until the client ends.
func (c *lockClient) pause(r *rand.Rand, below time.Duration) {
	t := time.NewTimer(time.Duration(r.Int64N(int64(below))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
}

// farewell bounds the last requests of a client that is ending.
const farewell = 10 * time.Second

// session opens a session, retrying until it succeeds. It returns nil when the client ends.
func (c *lockClient) session(r *rand.Rand, name string) *session.Session {
	for c.ctx.Err() == nil {
		lease := api.LeaseMin + time.Duration(r.Int64N(int64(2500*time.Millisecond)))
		if c.Number%2 == 1 {
			lease *= 3 // longer leases notice faults later, and others wait for them longer
		}
		s, err := c.lib.Open(c.ctx, session.Options{Name: fmt.Sprintf("client %d %s", c.Number, name), Lease: lease})
		if err == nil {
			c.count(func(t *tallies) { t.Sessions++ })
			return s
		}
		c.pause(r, 200*time.Millisecond)
	}
	return nil
}

// end closes a session. The error is that of its Close.
func (c *lockClient) end(s *session.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), farewell)
	defer cancel()
	return s.Close(ctx)
}

// seen is a worker's knowledge of a register.
type seen struct {
	gen   uint64
	value string
}

// useRegisters reads and changes registers, with a session if lib supports them.
func (c *lockClient) useRegisters(r *rand.Rand, lib *session.Client) {
	for c.ctx.Err() == nil {
		var s *session.Session
		if lib == c.lib {
			if s = c.session(r, "registers"); s == nil {
				return
			}
		}
		last := map[string]seen{}
		for c.ctx.Err() == nil && (s == nil || s.Err() == nil) {
			path := c.register(r)
			o := call{Path: path, Gen: last[path].gen, Old: last[path].value}
			switch n := r.IntN(20); {
			case n < 6 && s != nil:
				o.Kind, o.Gen, o.Old = "cached", 0, ""
			case n < 12:
				o.Kind, o.Gen, o.Old = "get", 0, ""
			case n < 19:
				o.Kind, o.Value = "set", fmt.Sprintf("%d.%d", c.Number, c.number.Add(1))
			default:
				o.Kind = "delete"
			}
			if n := r.IntN(5); n == 0 && (o.Kind == "set" || o.Kind == "delete") || o.Kind == "delete" && o.Gen == 0 {
				o.Gen, o.Old = api.AnyGeneration, ""
			}
			timeout := 500*time.Millisecond + time.Duration(r.Int64N(int64(3*time.Second)))
			got := c.operate(timeout, lib, s, o)
			switch {
			case got.Void || got.Unknown || got.Refused:
				delete(last, path) // without a get in between, the next set expects no file
			case o.Kind == "set":
				last[path] = seen{got.Gen, o.Value}
			default:
				last[path] = seen{got.Gen, got.Value}
			}
			c.pause(r, 30*time.Millisecond)
		}
		if s != nil {
			_ = c.end(s) // after an error it ends with its lease
		}
	}
}

// eraLength is short, so that few operations of unknown outcome are on one register.
const eraLength = 1500 * time.Millisecond

// register returns the path of a register of the current or the previous era.
func (c *lockClient) register(r *rand.Rand) string {
	return fmt.Sprintf("%s/%d-%d", filesDir, now()/int64(eraLength)-r.Int64N(2), r.IntN(6))
}

// useCache reads only through the cache of one session, even without other messages, and waits for
// nothing that is not cached.
func (c *lockClient) useCache() {
	r := c.rand(400)
	for c.ctx.Err() == nil {
		s := c.session(r, "cache")
		if s == nil {
			return
		}
		var readers sync.WaitGroup
		for i := range cacheWorkers {
			readers.Go(func() {
				for r := c.rand(401 + i); c.ctx.Err() == nil && s.Err() == nil; c.pause(r, 30*time.Millisecond) {
					c.operate(60*time.Millisecond, c.lib, s, call{Kind: "cached", Path: c.register(r)})
				}
			})
		}
		readers.Wait()
		_ = c.end(s) // after an error it ends with its lease
	}
}

// operate makes a call, on behalf of the session if there is one, and records call and answer.
func (c *lockClient) operate(timeout time.Duration, lib *session.Client, s *session.Session, o call) (got answer) {
	number := c.number.Add(1)
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	c.put(entry{At: now(), Op: number, Call: &o})
	var err error
	switch {
	case o.Kind == "cached" || o.Kind == "get":
		var f api.File
		if o.Kind == "cached" {
			f, err = s.Get(ctx, o.Path)
		} else {
			f, err = lib.Get(ctx, o.Path)
		}
		if errors.Is(err, api.ErrNotFound) {
			err = nil
		}
		got = answer{Gen: f.Generation, Value: string(f.Data)}
	case o.Kind == "set" && s == nil:
		got.Gen, err = lib.Set(ctx, o.Path, []byte(o.Value), o.Gen, api.SetOptions{})
	case o.Kind == "set":
		got.Gen, err = s.Set(ctx, o.Path, []byte(o.Value), o.Gen, api.SetOptions{})
	case s == nil:
		err = lib.Delete(ctx, o.Path, o.Gen, api.SetOptions{})
	default:
		err = s.Delete(ctx, o.Path, o.Gen, api.SetOptions{})
	}
	if err != nil {
		got = outcome(err)
	}
	c.put(entry{At: now(), Op: number, Got: &got})
	c.count(func(t *tallies) {
		switch {
		case got.Unknown:
			t.Unknown++
		case got.Void:
			t.Void++
		default:
			t.Answers++
			if o.Kind == "cached" {
				t.CacheReads++
			}
		}
	})
	return got
}

// outcome returns what an error means for an operation.
func outcome(err error) answer {
	got := answer{Error: err.Error()}
	var differs *api.GenerationError
	switch {
	case errors.Is(err, api.ErrOutcomeUnknown):
		got.Unknown = true
	case errors.As(err, &differs):
		got.Refused, got.Gen = true, differs.Got
	case errors.Is(err, api.ErrNotFound):
		got.Refused = true
	default:
		got.Void = true
	}
	return got
}

// useEphemerals creates ephemeral files and checks that they exist (FL5).
func (c *lockClient) useEphemerals(r *rand.Rand) {
	for c.ctx.Err() == nil {
		s := c.session(r, "ephemerals")
		if s == nil {
			return
		}
		path := fmt.Sprintf("%s/%d-%d", ephemeralDir, c.Number, c.number.Add(1))
		made := c.ephemeral(r, s, path)
		if err := c.end(s); err == nil && made && s.Err() != nil && !errors.Is(s.Err(), session.ErrExpired) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), farewell)
			if _, err := c.lib.Get(ctx, path); err == nil {
				c.bad("ephemeral %s is there after session %d was closed", path, s.ID())
			}
			cancel()
		}
	}
}

// ephemeral creates a file and checks it for a while. It reports whether the file was created.
func (c *lockClient) ephemeral(r *rand.Rand, s *session.Session, path string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	if _, err := s.Set(ctx, path, []byte("here"), 0, api.SetOptions{Ephemeral: true}); err != nil {
		return false
	}
	c.count(func(t *tallies) { t.Ephemerals++ })
	for end := now() + r.Int64N(int64(4*time.Second)); now() < end && c.ctx.Err() == nil && s.Err() == nil; {
		_, err := c.lib.Get(ctx, path)
		if errors.Is(err, api.ErrNotFound) && s.Valid() {
			c.bad("ephemeral %s is gone while session %d believes in its lease", path, s.ID())
		}
		c.pause(r, 200*time.Millisecond)
	}
	return true
}
