package gossipkey

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/stages"
	"github.com/steledb/stele/security/rollover"
)

// recordFile is the file with the record of the current key and its rotation.
const recordFile = namespace.SecurityDir + "/gossip"

const (
	stepPeriod = 500 * time.Millisecond
	// stepTimeout bounds one step.
	stepTimeout = time.Minute
)

// Follow performs rotations of the gossip key on this node, and as master starts them and their stages, until the node closes.
func (s *Service) Follow() {
	if len(s.Keys()) == 0 {
		return
	}
	logged, period := "", cmp.Or(s.Period, stepPeriod)
	for s.Ctx.Err() == nil {
		err := s.Step()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != logged && s.Ctx.Err() == nil {
			level := slog.LevelWarn
			if waits := (*waitError)(nil); errors.As(err, &waits) { // usually brief
				level = slog.LevelInfo
			}
			s.Log.Log(s.Ctx, level, "gossip key rotation waiting", "err", err)
		}
		logged = text
		timing.Sleep(s.Ctx, period)
	}
}

// Record returns the record of the current key and its rotation; nil before the first master has written it.
func (s *Service) Record(ctx context.Context) (*rollover.KeyRecord, uint64, error) {
	return stages.Read(ctx, s.Meta, recordFile, rollover.DecodeKeyRecord)
}

// Step performs the record's current stage. The record is in the session's cache.
func (s *Service) Step() error {
	ctx, cancel := context.WithTimeout(s.Ctx, stepTimeout)
	defer cancel()
	s.rotating.Lock()
	defer s.rotating.Unlock()
	rec, gen, err := s.Record(ctx)
	switch {
	case err != nil && gen == 0:
		return nil // the lock service has no leader; that is logged elsewhere
	case err != nil:
		return err
	case rec == nil:
		return s.recordCurrent(ctx)
	}
	if err := s.followStage(ctx, rec); err != nil {
		if lost := (*lostError)(nil); errors.As(err, &lost) && lost.forGood(rec.Stage) && s.IsMaster() {
			s.Log.Warn("gossip key rotation restarted: no node has the new key", "err", err)
			return s.begin(ctx, gen)
		}
		return err
	}
	if rec.Stage == rollover.Retire {
		return s.rotateIfRemoved(ctx, rec, gen)
	}
	if err := s.progress.Report(ctx, rec); err != nil || !s.IsMaster() {
		return err
	}
	waiting, err := s.waitingFor(ctx, rec)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		return &waitError{rec.Stage, waiting}
	}
	next := rec.At(rec.Next())
	s.Log.Info("gossip key rotation advanced", "stage", next.Stage.String())
	_, err = s.Changes.SetAsMaster(ctx, recordFile, next.Encode(), gen)
	return err
}

// waitError means that nodes have not completed a stage.
type waitError struct {
	stage rollover.KeyStage
	nodes []string
}

func (e *waitError) Error() string {
	return fmt.Sprintf("stage %s is not completed by nodes %s", e.stage, strings.Join(e.nodes, ", "))
}

// Rotate starts a rotation requested by an operator, as master, unless one is running.
func (s *Service) Rotate(ctx context.Context) error {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	rec, gen, err := s.Record(ctx)
	if err != nil || rec != nil && rec.Stage != rollover.Retire {
		return err
	}
	if rec != nil { // so that other nodes have the key that now becomes the old one
		if err := s.followStage(ctx, rec); err != nil {
			return err
		}
	}
	return s.begin(ctx, gen)
}

// recordCurrent records, as master, the current key, so that a node with another one fetches it. If nodes were removed before there
// was a record, or the lock service was recovered from a voter without one, the key is replaced.
func (s *Service) recordCurrent(ctx context.Context) error {
	if !s.IsMaster() {
		return nil
	}
	removed, err := s.Removed.Marked(ctx)
	if err != nil {
		return err
	}
	if len(removed) > 0 || s.RaftEpoch() > 0 {
		return s.begin(ctx, 0)
	}
	id := rollover.IDOfKey(s.Keys()[0])
	rec := &rollover.KeyRecord{Stage: rollover.Retire, Old: id, New: id, Removed: rollover.RemovedDigest(removed, s.RaftEpoch()), Started: time.Now()}
	_, err = s.Changes.SetAsMaster(ctx, recordFile, rec.Encode(), 0)
	return err
}

// rotateIfRemoved starts a rotation, as master, if a node was removed or the lock service was recovered after the current key was made.
// A recovery may restore the record of an older key.
func (s *Service) rotateIfRemoved(ctx context.Context, rec *rollover.KeyRecord, gen uint64) error {
	if !s.IsMaster() || rec.Removed == rollover.RemovedDigest(s.Removed.All(), s.RaftEpoch()) {
		return nil
	}
	removed, err := s.Removed.Marked(ctx) // the list in memory may be outdated
	if err != nil || rec.Removed == rollover.RemovedDigest(removed, s.RaftEpoch()) {
		return err
	}
	return s.begin(ctx, gen)
}

// begin generates a key and starts a rotation to it, as master. The key is on this node's disk before other nodes learn of it.
// Removed nodes are listed before the key is generated: none of them can get it. A master that was itself removed generates none.
func (s *Service) begin(ctx context.Context, gen uint64) error {
	removed, err := s.Removed.Marked(ctx)
	if err != nil {
		return err
	}
	if removed[s.ID()] {
		return removal.ErrorOf(s.ID())
	}
	old, key := s.Keys()[0], make([]byte, len(s.Keys()[0]))
	_, _ = cryptorand.Read(key) // never fails
	if err := s.Use([][]byte{old, key}); err != nil {
		return err
	}
	rec := &rollover.KeyRecord{Stage: rollover.Install, Old: rollover.IDOfKey(old), New: rollover.IDOfKey(key),
		Removed: rollover.RemovedDigest(removed, s.RaftEpoch()), Started: time.Now()}
	if _, err := s.Changes.SetAsMaster(ctx, recordFile, rec.Encode(), gen); err != nil {
		return err
	}
	s.Log.Info("gossip key rotation started", "removed_nodes", len(removed))
	return nil
}

// followStage makes this node use the keys of the stage, and fetches missing ones. A node that returns does not need the old key once
// the others encrypt with the new one.
func (s *Service) followStage(ctx context.Context, rec *rollover.KeyRecord) error {
	have := s.Keys()
	var keys [][]byte
	for i, id := range rec.Keys() {
		key := keyOf(have, id)
		if key == nil && (i == 0 || rec.Stage == rollover.Install) {
			var err error
			if key, err = s.fetch(ctx, id); err != nil {
				if i > 0 { // keep the old key, which is in use: the rotation may restart with it
					err = errors.Join(err, s.Use(keys))
				}
				return err
			}
		}
		if key != nil {
			keys = append(keys, key)
		}
	}
	return s.Use(keys)
}

// waitingFor returns the nodes that gossip sees and that have not completed the stage. Others fetch the keys when they return.
func (s *Service) waitingFor(ctx context.Context, rec *rollover.KeyRecord) ([]string, error) {
	all, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, x := range all {
		if x.Alive {
			ids = append(ids, x.ID)
		}
	}
	progress, err := s.progress.Of(ctx, ids)
	if err != nil {
		return nil, err
	}
	return rollover.Waiting(rec, ids, progress), nil
}
