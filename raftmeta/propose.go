package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/api"
)

const (
	// inFlightBytesMax bounds the encoded commands in flight. Above it, further proposals wait as
	// long as their contexts allow.
	inFlightBytesMax = 32 << 20
	// entriesPerWrite bounds the entries that share one fsync, and one message to another voter.
	entriesPerWrite = 256
	// submissionsMax bounds the futures between proposeLoop and answerLoop. When it is reached,
	// proposeLoop waits, since that many answers are pending anyway.
	submissionsMax = 2 * entriesPerWrite
	// batchesMax bounds the batches of commands in flight. With 64 callers of three voters that
	// share a disk, 1 allows 21,000 commands/s, 2 allows 18,000, and no bound 8,000.
	batchesMax = 1
	// freeBytesAge bounds the age of a measurement of free disk space.
	freeBytesAge = time.Second
)

// proposal is a command to be appended to the log.
type proposal struct {
	command []byte
	// answer receives one answer. Its capacity is one, so that the sender never waits for a caller
	// that is gone.
	answer chan answer
}

type answer struct {
	result fsm.Result
	err    error
}

// submission is a proposal that raft has accepted.
type submission struct {
	proposal *proposal
	future   raft.ApplyFuture
	// last is set for the last proposal of a batch.
	last bool
}

// proposeLoop passes proposals to raft in batches. Callers do not call raft directly, because
// raft's queue may block, and its futures have no deadline. While batchesMax batches are in flight,
// the next one forms. An fsync, here and on the other voters, costs more than the data it writes,
// and raft alone would make one fsync per few commands.
func (g *Group) proposeLoop() {
	defer close(g.submissions)
	var batch []*proposal
	batches := 0
	for {
		batch = batch[:0]
		for len(batch) == 0 || batches >= batchesMax {
			in := g.proposals
			if len(batch) == entriesPerWrite {
				in = nil
			}
			select {
			case p := <-in:
				batch = append(batch, p)
			case <-g.batchDone:
				batches--
			case <-g.closing:
				// The callers of these proposals wait for their answers.
				g.submit(batch)
				return
			}
		}
		for more := true; more && len(batch) < entriesPerWrite; {
			select {
			case p := <-g.proposals:
				batch = append(batch, p)
			default:
				more = false
			}
		}
		g.submit(batch)
		batches++
	}
}

// submit passes a batch to raft.
func (g *Group) submit(batch []*proposal) {
	for i, p := range batch {
		g.submissions <- submission{p, g.raft.Apply(p.command, 0), i == len(batch)-1}
	}
}

// answerLoop waits for the futures in order, in which raft also answers them.
func (g *Group) answerLoop() {
	for f := range g.submissions {
		var a answer
		if a.err = f.future.Error(); a.err == nil {
			a.result = f.future.Response().(fsm.Result)
		}
		g.inFlight.Release(int64(len(f.proposal.command)))
		if f.last {
			select {
			case g.batchDone <- struct{}{}:
			case <-g.closing:
			}
		}
		f.proposal.answer <- a
	}
}

// propose appends c to the log and returns its result.
func (g *Group) propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	if err := g.usable(); err != nil {
		return fsm.Result{}, err
	}
	p := &proposal{command: c.Encode(), answer: make(chan answer, 1)}
	size := int64(len(p.command))
	if err := g.inFlight.Acquire(ctx, size); err != nil {
		return fsm.Result{}, err
	}
	select {
	case g.proposals <- p:
	case <-ctx.Done():
		g.inFlight.Release(size)
		return fsm.Result{}, ctx.Err()
	case <-g.closing:
		g.inFlight.Release(size)
		return fsm.Result{}, g.usable()
	case <-g.failed:
		g.inFlight.Release(size)
		return fsm.Result{}, g.usable()
	}
	select {
	case a := <-p.answer:
		return a.result, g.proposeError(a.err)
	case <-ctx.Done():
		return fsm.Result{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-g.failed:
		return fsm.Result{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, g.usable())
	}
}

// proposeError converts raft's error for a proposal.
func (g *Group) proposeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		// Raft returns this error and the next before it appends the entry.
		return g.notLeading()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// Set writes data, at most api.FileBytesMax bytes, to the file at path if its content generation is
// gen, and returns the new generation. Zero for gen requires that the file does not exist.
// api.AnyGeneration matches any generation, and a file that does not exist. Missing parent directories
// are created.
//
// Set does not retain data. When it returns nil, the change is durable, and visible to every Get
// that begins later. The error is a *PathError, a *GenerationError, a *TooLargeError,
// ErrIsDirectory, ErrNotDirectory, ErrDiskFull, ErrNotReady, ErrClosed or ctx's, and nothing was
// changed; or ErrOutcomeUnknown, and ctx's if ctx ended, and the write may still commit.
func (g *Group) Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	g.count.sets.Add(1)
	made, err := g.service.Set(ctx, path, data, gen, api.SetOptions{})
	if err != nil {
		return 0, fmt.Errorf("set %s: %w", path, err)
	}
	return made, nil
}

// Delete removes the file or empty directory at path if its generation is gen; api.AnyGeneration
// matches any. The generation of a directory changes when a child is added or removed. The error is
// a *PathError, ErrNotFound, a *GenerationError, ErrNotEmpty, ErrNotReady, ErrClosed or ctx's, and
// nothing was changed; or ErrOutcomeUnknown, and ctx's if ctx ended, and the change may still
// commit.
func (g *Group) Delete(ctx context.Context, path string, gen uint64) error {
	g.count.deletes.Add(1)
	if err := g.service.Delete(ctx, path, gen, api.SetOptions{}); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// diskSpace monitors the free space of the disk.
type diskSpace struct {
	free func() (int64, error)
	// reserve is Config.ReserveBytes.
	reserve int64
	// measured is when the free space was last measured, in nanoseconds since start.
	measured atomic.Int64
	start    time.Time
	full     atomic.Bool
}

// check returns ErrDiskFull if the disk has less than the reserve. It measures at most once per
// freeBytesAge. If the measurement fails, check returns nil: a write will report a broken disk.
func (d *diskSpace) check() error {
	now, last := int64(time.Since(d.start)), d.measured.Load()
	if (last == 0 || now-last > int64(freeBytesAge)) && d.measured.CompareAndSwap(last, max(now, 1)) {
		free, err := d.free()
		d.full.Store(err == nil && free < d.reserve)
	}
	if d.full.Load() {
		return fmt.Errorf("%w: less than %d bytes are free", ErrDiskFull, d.reserve)
	}
	return nil
}
