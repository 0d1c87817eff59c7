package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// Directories of the lock service that clients use: users of a secured cluster may write below
// /locks.
const (
	filesDir     = "/locks/files"
	locksDir     = "/locks/held"
	ephemeralDir = "/locks/ephemeral"
)

// filesOfEra is the number of files in use at a time, locks that of locks; the last lock is acquired
// in both modes.
const (
	filesOfEra = 4
	locks      = 4
)

// lockClient is the part of a client that uses the lock service.
type lockClient struct {
	*worker
	locks *session.Client
	s     *session.Session // nil if there is none
	// seen has the last known state of files, for compare-and-set.
	seen map[string]File
}

// close ends the session, and closes the connections.
func (c *lockClient) close(ctx context.Context) {
	if c.s != nil {
		c.endSession(ctx)
	}
	_ = c.locks.Close() // connections only
}

// do makes one operation on the lock service. all is the context of the client.
func (c *lockClient) do(all, ctx context.Context, f Feature) {
	if !c.session(ctx) {
		return
	}
	switch f {
	case Files:
		c.file(ctx)
	case Locks:
		c.hold(all, ctx)
	case Ephemerals:
		c.ephemeral(all, ctx)
	case Watches:
		c.watch(all, ctx)
	}
	if c.r.IntN(100) == 0 && c.s != nil {
		c.endSession(all)
	}
}

// session opens a session if the client has none.
func (c *lockClient) session(ctx context.Context) bool {
	if c.s != nil && c.s.Err() == nil {
		return true
	}
	if c.s != nil {
		c.endSession(ctx)
	}
	lease := api.LeaseMin + c.below(3*api.LeaseMin)
	s, err := c.locks.Open(ctx, session.Options{Name: fmt.Sprintf("client %d", c.number), Lease: lease})
	if err != nil {
		return false
	}
	c.s = s
	return true
}

func (c *lockClient) endSession(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = c.s.Close(ctx) // after an error it ends with its lease
	c.s = nil
}

func (c *lockClient) path() string {
	return fmt.Sprintf("%s/%d-%d", filesDir, c.era(), c.r.IntN(filesOfEra))
}

// file makes one operation on a file.
func (c *lockClient) file(ctx context.Context) {
	path := c.path()
	f, kind := &File{Path: path}, GetFile
	switch n := c.r.IntN(20); {
	case n < 4:
		kind = CachedFile
	case n < 9:
	case n < 18:
		kind, f.Value = SetFile, c.entry()
	default:
		kind = DeleteFile
	}
	if kind == SetFile || kind == DeleteFile {
		f.Generation, f.Old = c.seen[path].FoundGeneration, c.seen[path].FoundValue
		if c.r.IntN(5) == 0 || kind == DeleteFile && f.Generation == 0 {
			f.Generation, f.Old = api.AnyGeneration, ""
		}
	}
	op := c.useFile(ctx, kind, f)
	for range c.r.IntN(8) * c.r.IntN(2) {
		if kind != CachedFile || op.Outcome != OK || op.File.Refused {
			break
		}
		c.pause(ctx, 500*time.Millisecond)
		op = c.useFile(ctx, kind, &File{Path: path}) // from the cache of the session
	}
	switch {
	case op.Outcome != OK || op.File.Refused || kind == DeleteFile:
		delete(c.seen, path) // without a read in between, the next set expects no file
	case kind == SetFile:
		c.seen[path] = File{FoundGeneration: op.File.FoundGeneration, FoundValue: f.Value}
	default:
		c.seen[path] = *op.File
	}
}

// useFile makes an operation on a file and records it.
func (c *lockClient) useFile(ctx context.Context, kind Kind, f *File) Op {
	op := c.begin(Op{Kind: kind, File: f})
	result := *f // f belongs to the history now
	var err error
	switch kind {
	case GetFile, CachedFile:
		var found api.File
		if kind == CachedFile && c.s != nil {
			found, err = c.s.Get(ctx, f.Path)
		} else {
			found, err = c.locks.Get(ctx, f.Path)
		}
		result.FoundGeneration, result.FoundValue = found.Generation, string(found.Data)
		if errors.Is(err, api.ErrNotFound) {
			err = nil
		}
	case SetFile:
		result.FoundGeneration, err = c.locks.Set(ctx, f.Path, []byte(f.Value), f.Generation, api.SetOptions{})
	case DeleteFile:
		err = c.locks.Delete(ctx, f.Path, f.Generation, api.SetOptions{})
	}
	var differs *api.GenerationError
	switch {
	case errors.Is(err, api.ErrOutcomeUnknown):
	case errors.As(err, &differs):
		result.Refused, result.FoundGeneration, err = true, differs.Got, nil
	case errors.Is(err, api.ErrNotFound):
		result.Refused, result.FoundGeneration, err = true, 0, nil
	}
	op.File = &result
	return c.history.End(op, err)
}

// hold acquires a lock, holds it for a while, and releases it.
func (c *lockClient) hold(all, ctx context.Context) {
	h := &Hold{Lock: fmt.Sprintf("%s/%d", locksDir, c.r.IntN(locks)), Session: uint64(c.s.ID()), Released: Infinity}
	mode := api.Exclusive
	if h.Lock == fmt.Sprintf("%s/%d", locksDir, locks-1) && c.r.IntN(3) > 0 {
		mode, h.Shared = api.Shared, true
	}
	o := session.LockOptions{Try: c.r.IntN(4) == 0}
	if c.r.IntN(2) == 0 {
		o.Delay = c.below(time.Second)
	}
	op := c.begin(Op{Kind: HoldLock, Hold: h})
	l, err := c.s.Acquire(ctx, h.Lock, mode, o)
	if err != nil {
		c.history.End(op, err)
		return
	}
	result := *h
	result.Generation, result.From = l.Generation(), c.history.Now()
	result.To = result.From
	length := 300 * time.Millisecond
	if c.r.IntN(4) == 0 {
		length = 5 * time.Second // long enough for faults
	}
	for end := time.Now().Add(c.below(length)); time.Now().Before(end) && all.Err() == nil && c.s.Err() == nil; {
		if at := c.history.Now(); l.Held() {
			result.To = at
		}
		c.pause(all, 40*time.Millisecond)
	}
	c.release(ctx, l, &result)
	op.Hold = &result
	c.history.End(op, nil)
}

// release releases a lock, after which its sequencer must be invalid.
func (c *lockClient) release(ctx context.Context, l *session.Lock, h *Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if at := c.history.Now(); l.Held() {
		h.To = at
	}
	if err := l.Release(ctx); err != nil || c.s.Err() != nil {
		return // it is free when the session ends, at the latest
	}
	h.Released = c.history.Now()
	if h.Shared {
		return
	}
	if err := c.locks.CheckSequencer(ctx, l.Sequencer()); err == nil {
		c.history.Violation(c.number, fmt.Sprintf("sequencer %v is valid though the lock was released", l.Sequencer()))
	}
}

// ephemeral creates an ephemeral file and checks that it exists while the session does, and not
// after the session was closed.
func (c *lockClient) ephemeral(all, ctx context.Context) {
	path, s := fmt.Sprintf("%s/%d-%d", ephemeralDir, c.number, c.history.number()), c.s
	op := c.begin(Op{Kind: Ephemeral, File: &File{Path: path}})
	_, err := s.Set(ctx, path, []byte("here"), 0, api.SetOptions{Ephemeral: true})
	c.history.End(op, err)
	if err != nil {
		return
	}
	for end := time.Now().Add(c.below(2 * time.Second)); time.Now().Before(end) && all.Err() == nil && s.Err() == nil; {
		_, err := c.locks.Get(ctx, path)
		if errors.Is(err, api.ErrNotFound) && s.Valid() {
			c.history.Violation(c.number, fmt.Sprintf("ephemeral file %s is gone while session %d is valid", path, s.ID()))
		}
		c.pause(all, 200*time.Millisecond)
	}
	if c.r.IntN(2) == 0 {
		return // it is deleted with the session, later
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(all), farewell)
	defer cancel()
	c.s = nil
	if err := s.Close(bye); err != nil || errors.Is(s.Err(), session.ErrExpired) {
		return
	}
	if _, err := c.locks.Get(bye, path); err == nil {
		c.history.Violation(c.number, fmt.Sprintf("ephemeral file %s exists after session %d was closed", path, s.ID()))
	}
}

// eventPatience bounds how long an event may take if there is no fault that the session notices.
const eventPatience = 30 * time.Second

// watch watches a file for a while. All changes of it are made by other clients. The last one must
// have been delivered as an event, unless events may have been missed, which is an event, too.
func (c *lockClient) watch(all, ctx context.Context) {
	path, s := c.path(), c.s
	op := c.begin(Op{Kind: WatchFile, File: &File{Path: path}})
	w, err := s.Watch(ctx, path, api.ContentsChanged)
	if err != nil {
		c.history.End(op, err)
		return
	}
	defer w.Close()
	first, err := c.locks.Get(ctx, path)
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		c.history.End(op, err)
		return
	}
	c.pause(all, 2*time.Second)
	last, err := c.locks.Get(ctx, path)
	if err == nil && last.Generation > first.Generation {
		c.awaitEvent(all, s, w, path, last.Generation)
	}
	c.history.End(op, nil)
}

// awaitEvent waits for the event of a generation of a file.
func (c *lockClient) awaitEvent(all context.Context, s *session.Session, w *session.Watcher, path string, generation uint64) {
	ctx, cancel := context.WithTimeout(all, eventPatience)
	defer cancel()
	for {
		e, err := w.Next(ctx)
		if err != nil {
			if all.Err() == nil && s.Err() == nil && s.Valid() && errors.Is(err, context.DeadlineExceeded) {
				c.history.Violation(c.number, fmt.Sprintf("no event of generation %d of %s within %v", generation, path, eventPatience))
			}
			return
		}
		if e.Kind == api.FailedOver || e.Index == 0 || e.Index >= generation {
			return
		}
	}
}
