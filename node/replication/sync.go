package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

const (
	// urgentFor is how long the changes of a table are read without a wait for them after a sync: another one follows when a table is moved.
	urgentFor = 5 * time.Second
	// urgentPause is the pause between two such reads without changes, and that between two looks at what is made.
	urgentPause = 5 * time.Millisecond
)

// made is what a follower has made of the changes of its source.
type made struct {
	source    uint64 // id of the source's table
	positions []client.ChangePosition
}

// sync returns when a table has all changes that its source had acknowledged before the call, and its families.
func (s *Service) sync(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	f, err := s.followerOf(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	f.urgent.begin()
	result := &api.ReplicationSynced{}
	source, want, err := readSource(ctx, f.source.Load(), f.table)
	if err != nil {
		return nil, reply.Recode(api.ErrUnavailable, fmt.Errorf("the source: %w", err))
	}
	result.ReadOnly = source.ReadOnly
	for {
		if done := f.done.Load(); done != nil && done.source == source.ID && covers(done.positions, want) {
			have, err := s.Catalog.SchemaOf(ctx, f.table)
			if err != nil {
				return nil, err
			}
			if sameFamilies(have, source) {
				return result.Append, nil
			}
		}
		if !s.runs(f) {
			return nil, fmt.Errorf("%w: the replication was changed, or has another master", api.ErrUnavailable)
		}
		f.urgent.begin()
		if err := timing.Sleep(ctx, urgentPause); err != nil {
			return nil, late(f, err)
		}
	}
}

// readSource returns the schema of a table of the source, and then its positions.
func readSource(ctx context.Context, from *client.Client, name string) (*table.Schema, []client.ChangePosition, error) {
	info, err := from.Tables().Describe(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	positions, err := from.Table(name).ChangePositions(ctx)
	return info.Schema, positions, err
}

// followerOf returns the follower at work for a table. Errors: api.ErrNoTable, api.ErrNotFollower, and api.ErrUnavailable while it does not work yet.
func (s *Service) followerOf(ctx context.Context, name string) (*follower, error) {
	schema, err := s.Catalog.SchemaOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if schema.Follows == "" {
		return nil, fmt.Errorf("table %q: %w", name, api.ErrNotFollower)
	}
	rec, gen, err := s.read(ctx, schema.Follows)
	if err != nil {
		return nil, err
	}
	if rec.paused {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "replication %q is paused: resume it first (stele replication resume)", schema.Follows)
	}
	s.mu.Lock()
	r := s.running[schema.Follows]
	s.mu.Unlock()
	if r == nil || r.generation != gen || r.tables[name] == nil || r.tables[name].source.Load() == nil {
		return nil, fmt.Errorf("%w: the replication of table %q has not started yet", api.ErrUnavailable, name)
	}
	return r.tables[name], nil
}

// runs reports whether a follower is still at work.
func (s *Service) runs(f *follower) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[f.run.name] == f.run
}

// urgency is until when changes are read without a wait for them.
type urgency struct{ until atomic.Pointer[time.Time] }

func (u *urgency) begin() {
	until := time.Now().Add(urgentFor)
	u.until.Store(&until)
}

func (u *urgency) holds() bool {
	until := u.until.Load()
	return until != nil && time.Now().Before(*until)
}

// late returns the error of a sync that has ended early. It names the last failure of the table.
func late(f *follower, err error) error {
	if text := f.failure.Load(); text != nil {
		err = errors.Join(err, errors.New(*text))
	}
	return fmt.Errorf("table %q has not all changes of its source: %w", f.table, err)
}

// covers reports whether a reader that has made all changes before the positions done has made those before the positions want. Both are in the order of their rows.
func covers(done, want []client.ChangePosition) bool {
	i := 0
	for _, w := range want {
		for i < len(done) && len(done[i].End) > 0 && bytes.Compare(done[i].End, w.Start) <= 0 {
			i++
		}
		for ; i < len(done); i++ {
			if done[i].Next < w.Next {
				return false
			}
			if len(done[i].End) == 0 || len(w.End) > 0 && bytes.Compare(done[i].End, w.End) >= 0 {
				break // it has rows of the next one, too, or ends with this one
			}
		}
		if i == len(done) {
			return false
		}
	}
	return true
}
