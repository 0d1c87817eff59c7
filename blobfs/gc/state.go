package gc

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// StatePath is the file in the lock service that counts rounds. It is the MessagePack array
//
//	[1, round, reason why there are no more rounds, or ""]
//
// to which later versions append.
const StatePath = "/sweep"

const (
	stateVersion = 1
	stateValues  = 3
)

// state is the state shared by all Sweepers.
type state struct {
	round  uint64
	halted string
}

// encodeState encodes the state for the lock service.
func encodeState(st state) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(stateValues)
	e.Uint(stateVersion)
	e.Uint(st.round)
	e.Str(st.halted)
	return append([]byte(nil), e.Bytes()...)
}

func decodeState(b []byte) (st state, err error) {
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return st, fmt.Errorf("garbage collection state: %w", err)
	}
	d := wire.NewDecoder(b)
	more := d.Array() - stateValues
	if v := d.Uint(); d.Err() == nil && v != stateVersion {
		return st, fmt.Errorf("garbage collection state: version %d is unknown", v)
	}
	st.round, st.halted = d.Uint(), d.Str()
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return state{}, fmt.Errorf("garbage collection state: %w", err)
	}
	return st, nil
}

func (c *Collector) loadState(ctx context.Context) (st state, gen uint64, err error) {
	if c.deps.Lists == nil {
		return st, 0, errors.New("garbage collection state: no lock service")
	}
	b, gen, err := c.deps.Lists.Load(ctx, StatePath)
	if err == nil && gen != 0 {
		st, err = decodeState(b)
	}
	return st, gen, err
}

// nextRound increments the round number and returns it. It returns ErrHalted if rounds are
// halted.
func (c *Collector) nextRound(ctx context.Context) (uint64, error) {
	st, gen, err := c.loadState(ctx)
	if err != nil {
		return 0, err
	}
	if st.halted != "" {
		return st.round, fmt.Errorf("%w: %s", ErrHalted, st.halted)
	}
	st.round++
	_, err = c.deps.Lists.Save(ctx, StatePath, encodeState(st), gen)
	return st.round, err
}

// stop records in the lock service that there must be no more rounds, and returns ErrHalted
// with the reason.
func (r *round) stop(ctx context.Context, node, alarm string) error {
	cause := fmt.Errorf("%w: %s: %s", ErrHalted, node, alarm)
	return errors.Join(cause, r.c.recordAlarm(ctx, node, alarm))
}

// Resume allows rounds again after an alarm, once an operator has made sure that the roots
// miss nothing. An error names the nodes whose alarm could not be cleared; such an alarm halts the
// next round.
func (c *Collector) Resume(ctx context.Context) error {
	st, gen, err := c.loadState(ctx)
	if err == nil && st.halted != "" {
		st.halted = ""
		_, err = c.deps.Lists.Save(ctx, StatePath, encodeState(st), gen)
	}
	errs := []error{err}
	for _, id := range c.deps.Peers.All() {
		p, err := c.deps.Peers.Any(ctx, id)
		if err == nil {
			err = p.ClearAlarm(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resume garbage collection: %w", err)
	}
	return nil
}

// Revive takes the extents of a blob out of quarantine on all nodes that answer, and returns how
// many there were. Unless a root names the blob by then, or it is pinned, later rounds find it
// again.
func (c *Collector) Revive(ctx context.Context, id local.ID) (n int, err error) {
	var errs []error
	for _, node := range c.deps.Peers.All() {
		p, err := c.deps.Peers.Any(ctx, node)
		if err == nil {
			var more int
			more, err = p.ReviveBlob(ctx, id)
			n += more
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", node, err))
		}
	}
	if n == 0 {
		errs = append(errs, local.ErrNoBlob)
	}
	if err := errors.Join(errs...); err != nil {
		return n, fmt.Errorf("revive blob %s: %w", id, err)
	}
	return n, nil
}
