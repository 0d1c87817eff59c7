package s3store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/steledb/stele/internal/backupdir"
	"github.com/steledb/stele/internal/timing"
)

const (
	lockDir = "lock"
	// lockLease is how long the lock of a holder that was killed keeps others out.
	lockLease = 2 * time.Minute
	lockRenew = 20 * time.Second
)

// lockTiming is lockLease and lockRenew, which tests shorten.
type lockTiming struct{ lease, renew time.Duration }

// lockFile is the content of lock/N.
type lockFile struct {
	Holder string `json:"holder"`
	Free   bool   `json:"free"`
}

// held is a lock that this process has acquired.
type held struct {
	s      *Store
	number uint64
	file   lockFile
}

func lockName(n uint64) string { return path.Join(lockDir, fmt.Sprintf("%010d", n)) }

// Lock implements backupdir.Store.
func (s *Store) Lock(ctx context.Context) (context.Context, func(), error) {
	last, _, err := s.lastLock(ctx)
	if err == nil && last > 0 {
		err = s.checkFree(ctx, last)
	}
	if err != nil {
		return nil, nil, err
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	h := &held{s, last + 1, lockFile{Holder: hex.EncodeToString(b[:])}}
	began := time.Now()
	if err := h.write(ctx, true); errors.Is(err, fs.ErrExist) {
		return nil, nil, s.busy()
	} else if err != nil {
		return nil, nil, err
	}
	if err := h.check(ctx); err != nil {
		_ = s.Remove(ctx, lockName(h.number)) // a smaller number than the largest counts for nothing
		if errors.Is(err, backupdir.ErrLockLost) {
			err = s.busy()
		}
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.renew(ctx, cancel, began)
	}()
	return ctx, func() {
		lost := ctx.Err() != nil && errors.Is(context.Cause(ctx), backupdir.ErrLockLost)
		cancel(nil)
		<-done
		if !lost {
			h.release(context.WithoutCancel(ctx))
		}
	}, nil
}

func (s *Store) busy() error { return &backupdir.BusyError{Dir: s.Location("")} }

// lastLock returns the largest number of a lock, 0 if there is none, and the smaller ones.
func (s *Store) lastLock(ctx context.Context) (last uint64, smaller []uint64, err error) {
	err = s.List(ctx, lockDir, func(name string, _ int64) error {
		n, err := strconv.ParseUint(path.Base(name), 10, 64)
		if err != nil || n == 0 {
			return nil // of another program
		}
		if last > 0 {
			smaller = append(smaller, min(n, last))
		}
		last = max(last, n)
		return nil
	})
	return last, smaller, err
}

// checkFree returns a *BusyError unless the lock with that number is free, or its holder was killed.
func (s *Store) checkFree(ctx context.Context, n uint64) error {
	raw, err := s.get(ctx, lockName(n))
	if errors.Is(err, fs.ErrNotExist) {
		return s.busy() // others are acquiring and releasing it
	}
	if err != nil {
		return err
	}
	var f lockFile
	if json.Unmarshal(raw, &f) == nil && f.Free {
		return nil
	}
	at, err := s.core.StatObject(ctx, s.bucket, s.key(lockName(n)), minio.StatObjectOptions{})
	if err != nil {
		return s.failure("read the time of", lockName(n), err)
	}
	now, err := s.now(ctx)
	if err == nil && now.Sub(at.LastModified) < s.timing.lease {
		err = s.busy()
	}
	return err
}

// now returns the time of the server: that of an object that it gets now.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	name := path.Join(tempDir, "time-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := s.put(ctx, name, false, nil); err != nil {
		return time.Time{}, err
	}
	at, err := s.core.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{})
	_ = s.Remove(ctx, name) // else Clean does it
	return at.LastModified, s.failure("read the time of", name, err)
}

// write writes the object of the lock.
func (h *held) write(ctx context.Context, absent bool) error {
	raw, err := json.Marshal(h.file)
	if err != nil {
		return err
	}
	return h.s.put(ctx, lockName(h.number), absent, raw)
}

// check returns backupdir.ErrLockLost if there is a larger number, and removes smaller ones.
func (h *held) check(ctx context.Context) error {
	last, smaller, err := h.s.lastLock(ctx)
	if err != nil {
		return err
	}
	if last != h.number {
		return backupdir.ErrLockLost
	}
	for _, n := range smaller {
		if err := h.s.Remove(ctx, lockName(n)); err != nil {
			return err
		}
	}
	return nil
}

// renew writes the lock's object from time to time until ctx ends. began is before it was last written. If the lock is lost, it cancels ctx.
func (h *held) renew(ctx context.Context, cancel context.CancelCauseFunc, began time.Time) {
	for timing.Sleep(ctx, h.s.timing.renew) == nil {
		now := time.Now()
		attempt, stop := context.WithDeadline(ctx, began.Add(h.s.timing.lease-h.s.timing.renew))
		err := h.check(attempt)
		if err == nil {
			err = h.write(attempt, false)
		}
		stop()
		switch {
		case err == nil:
			began = now
		case errors.Is(err, backupdir.ErrLockLost) || time.Since(began) >= h.s.timing.lease-h.s.timing.renew:
			cancel(backupdir.ErrLockLost)
			return
		}
	}
}

// releaseTimeout bounds the release of a lock, which others may take over after lockLease otherwise.
const releaseTimeout = 10 * time.Second

// release marks the lock as free.
func (h *held) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	h.file.Free = true
	_ = h.write(ctx, false)
}
