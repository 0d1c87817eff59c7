package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/api"
)

const (
	// inFlightBytesMax bounds the commands that wait to be committed: a
	// further one waits for room, as long as its context lets it.
	inFlightBytesMax = 32 << 20
	// entriesPerWrite is how many entries share one fsync, and one message to
	// another voter.
	entriesPerWrite = 256
	// flightsMax bounds the futures between proposeLoop and answerLoop. When
	// it is full proposing pauses, since that many answers are due anyway.
	flightsMax = 2 * entriesPerWrite
	// batchesMax is how many batches of commands are under way at once. With
	// 64 callers of three voters that share a disk, one is good for 21,000
	// commands a second, two for 18,000, and no bound for 8,000.
	batchesMax = 1
	// freeBytesAge is how old a measure of the disk's free space may be.
	freeBytesAge = time.Second
)

// proposal is a command on its way into the log.
type proposal struct {
	command []byte
	// answer gets one answer. It has room for it, so that nobody waits for a
	// caller that has gone.
	answer chan answer
}

type answer struct {
	result result
	err    error
}

// flight is a proposal that raft has taken.
type flight struct {
	proposal *proposal
	future   raft.ApplyFuture
	// last is set for the last of a batch.
	last bool
}

// proposeLoop hands proposals to raft, in batches. Callers do not do so
// themselves because raft's queue may block, and its futures know no deadline.
// While batchesMax batches are under way the next one gathers: an fsync, here
// and at the others, costs more than what it writes, and raft alone would have
// one fsync for each few commands.
func (g *Group) proposeLoop() {
	defer close(g.flights)
	var batch []*proposal
	under := 0
	for {
		batch = batch[:0]
		for len(batch) == 0 || under >= batchesMax {
			in := g.proposals
			if len(batch) == entriesPerWrite {
				in = nil
			}
			select {
			case p := <-in:
				batch = append(batch, p)
			case <-g.landed:
				under--
			case <-g.closing:
				// Those who handed in these wait for their answers.
				g.fly(batch)
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
		g.fly(batch)
		under++
	}
}

// fly hands a batch to raft.
func (g *Group) fly(batch []*proposal) {
	for i, p := range batch {
		g.flights <- flight{p, g.raft.Apply(p.command, 0), i == len(batch)-1}
	}
}

// answerLoop waits for each future in turn: raft answers them in order.
func (g *Group) answerLoop() {
	for f := range g.flights {
		var a answer
		if a.err = f.future.Error(); a.err == nil {
			a.result = f.future.Response().(result)
		}
		g.inFlight.Release(int64(len(f.proposal.command)))
		if f.last {
			select {
			case g.landed <- struct{}{}:
			case <-g.closing:
			}
		}
		f.proposal.answer <- a
	}
}

// propose puts c into the log and returns what came of it.
func (g *Group) propose(ctx context.Context, c command) (result, error) {
	if err := g.usable(); err != nil {
		return result{}, err
	}
	p := &proposal{command: c.encode(), answer: make(chan answer, 1)}
	size := int64(len(p.command))
	if err := g.inFlight.Acquire(ctx, size); err != nil {
		return result{}, err
	}
	select {
	case g.proposals <- p:
	case <-ctx.Done():
		g.inFlight.Release(size)
		return result{}, ctx.Err()
	case <-g.closing:
		g.inFlight.Release(size)
		return result{}, g.usable()
	case <-g.failed:
		g.inFlight.Release(size)
		return result{}, g.usable()
	}
	select {
	case a := <-p.answer:
		return a.result, g.proposeError(a.err)
	case <-ctx.Done():
		return result{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-g.failed:
		return result{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, g.usable())
	}
}

// proposeError turns raft's error into ours.
func (g *Group) proposeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		// Raft says this, and the next, before it appends the entry.
		return g.notLeading()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// Set gives the file at path the content data, at most FileBytesMax bytes, if
// its content generation is gen, and returns the new generation. Zero for gen
// means that the file must not exist; AnyGeneration that it may be at any, or
// not exist. A new file brings the directories above it that are missing.
//
// Set does not keep data. The change is durable and seen by every Get from
// then on when Set returns nil. The error is a *PathError, a *GenerationError,
// a *TooLargeError, ErrIsDirectory, ErrNotDirectory, ErrDiskFull, ErrNotReady,
// ErrClosed or ctx's, and nothing was changed; or it is ErrOutcomeUnknown, and
// ctx's as well when that ended: the write may still commit.
func (g *Group) Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	g.count.sets.Add(1)
	made, err := g.service.Set(ctx, path, data, gen, api.SetOptions{})
	if err != nil {
		return 0, fmt.Errorf("set %s: %w", path, err)
	}
	return made, nil
}

// Delete removes the file or empty directory at path if its generation is gen;
// AnyGeneration means whatever it is. The generation of a directory changes
// when a child is added or removed. The error is a *PathError, ErrNotFound, a
// *GenerationError, ErrNotEmpty, ErrNotReady, ErrClosed or ctx's, and nothing
// was changed; or it is ErrOutcomeUnknown, and ctx's as well when that ended:
// the write may still commit.
func (g *Group) Delete(ctx context.Context, path string, gen uint64) error {
	g.count.deletes.Add(1)
	if err := g.service.Delete(ctx, path, gen, api.SetOptions{}); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// diskSpace knows whether the disk has room to spare.
type diskSpace struct {
	free func() (int64, error)
	// reserve is Config.ReserveBytes.
	reserve int64
	// measured is when that was last asked, in nanoseconds since start.
	measured atomic.Int64
	start    time.Time
	full     atomic.Bool
}

// check returns ErrDiskFull when the disk has less than the reserve. It asks
// the file system now and then. A file system that does not answer is no
// reason to refuse: the write itself will tell.
func (d *diskSpace) check() error {
	now, last := int64(time.Since(d.start)), d.measured.Load()
	if (last == 0 || now-last > int64(freeBytesAge)) && d.measured.CompareAndSwap(last, max(now, 1)) {
		free, err := d.free()
		d.full.Store(err == nil && free < d.reserve)
	}
	if d.full.Load() {
		return fmt.Errorf("%w: less than %d bytes are left", ErrDiskFull, d.reserve)
	}
	return nil
}
