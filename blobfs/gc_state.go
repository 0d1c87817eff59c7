package blobfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// SweepPath is the file in the lock service that counts rounds. It is the MessagePack array
//
//	[1, round, reason why there are no more rounds, or ""]
//
// to which later versions append.
const SweepPath = "/sweep"

const (
	gcStateVersion = 1
	gcStateValues  = 3
)

// gcState is the state shared by all Sweepers.
type gcState struct {
	round  uint64
	halted string
}

// encodeGCState encodes the state for the lock service.
func encodeGCState(st gcState) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(gcStateValues)
	e.Uint(gcStateVersion)
	e.Uint(st.round)
	e.Str(st.halted)
	return append([]byte(nil), e.Bytes()...)
}

func decodeGCState(b []byte) (st gcState, err error) {
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return st, fmt.Errorf("garbage collection state: %w", err)
	}
	d := wire.NewDecoder(b)
	more := d.Array() - gcStateValues
	if v := d.Uint(); d.Err() == nil && v != gcStateVersion {
		return st, fmt.Errorf("garbage collection state: version %d is unknown", v)
	}
	st.round, st.halted = d.Uint(), d.Str()
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return gcState{}, fmt.Errorf("garbage collection state: %w", err)
	}
	return st, nil
}

func (s *Store) loadGCState(ctx context.Context) (st gcState, gen uint64, err error) {
	if s.cluster.Lists == nil {
		return st, 0, errors.New("garbage collection state: no lock service")
	}
	b, gen, err := s.cluster.Lists.Load(ctx, SweepPath)
	if err == nil && gen != 0 {
		st, err = decodeGCState(b)
	}
	return st, gen, err
}

// nextRound increments the round number and returns it. It returns ErrSweepHalted if rounds are
// halted.
func (s *Store) nextRound(ctx context.Context) (uint64, error) {
	st, gen, err := s.loadGCState(ctx)
	if err != nil {
		return 0, err
	}
	if st.halted != "" {
		return st.round, fmt.Errorf("%w: %s", ErrSweepHalted, st.halted)
	}
	st.round++
	_, err = s.cluster.Lists.Save(ctx, SweepPath, encodeGCState(st), gen)
	return st.round, err
}

// halt records in the lock service that there must be no more rounds, and returns ErrSweepHalted
// with the reason.
func (r *gcRound) halt(ctx context.Context, node, alarm string) error {
	cause := fmt.Errorf("%w: %s: %s", ErrSweepHalted, node, alarm)
	st, gen, err := r.s.loadGCState(ctx)
	if err == nil && st.halted == "" {
		st.halted = node + ": " + alarm
		_, err = r.s.cluster.Lists.Save(ctx, SweepPath, encodeGCState(st), gen)
	}
	return errors.Join(cause, err)
}

// ResumeSweep allows rounds again after an alarm, once an operator has made sure that the roots
// miss nothing. An error names the nodes whose alarm could not be cleared; such an alarm halts the
// next round.
func (s *Store) ResumeSweep(ctx context.Context) error {
	st, gen, err := s.loadGCState(ctx)
	if err == nil && st.halted != "" {
		st.halted = ""
		_, err = s.cluster.Lists.Save(ctx, SweepPath, encodeGCState(st), gen)
	}
	errs := []error{err}
	for _, id := range s.peers.All() {
		p, err := s.peers.Any(ctx, id)
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
func (s *Store) Revive(ctx context.Context, id ID) (n int, err error) {
	var errs []error
	for _, node := range s.peers.All() {
		p, err := s.peers.Any(ctx, node)
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
		errs = append(errs, ErrNoBlob)
	}
	if err := errors.Join(errs...); err != nil {
		return n, fmt.Errorf("revive blob %s: %w", id, err)
	}
	return n, nil
}
