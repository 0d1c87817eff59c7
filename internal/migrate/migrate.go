package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// Config is what a migration needs.
type Config struct {
	// Source and Target are clients of the clusters. That of the source needs the right to administer the table, that of the target to administer the cluster.
	Source, Target *client.Client
	Table          string
	// PauseMax bounds the time for which changes are refused before the promotion begins. After it the source accepts them again.
	PauseMax time.Duration
	// Report is called with each step.
	Report func(step string)
}

// settleTimeout bounds the steps that must not be interrupted: the promotion, and the one that lets the source accept changes again.
const settleTimeout = time.Minute

// pollEvery is how often the state of the replication is looked at.
const pollEvery = 500 * time.Millisecond

// ErrOtherSource means that the table of the target does not follow that of the source.
var ErrOtherSource = errors.New("the table follows one of another cluster")

// StuckError means that the source's table may have stayed read-only.
type StuckError struct {
	Table string
	Cause error
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("the table %q of the source may be read-only: %v", e.Table, e.Cause)
}

// Unwrap returns the cause.
func (e *StuckError) Unwrap() error { return e.Cause }

// Run moves the table, and returns for how long changes were refused. Errors: those of client.Replications; ErrOtherSource; a *StuckError.
func Run(ctx context.Context, cfg Config) (refused time.Duration, err error) {
	m := &migration{Config: cfg}
	if err := m.awaitFollowing(ctx); err != nil {
		return 0, err
	}
	info, err := m.Source.Tables().Describe(ctx, m.Table)
	if err != nil {
		return 0, fmt.Errorf("the source: %w", err)
	}
	m.before, m.mark = info.Schema.ReadOnly, "it is being moved to another cluster by migration "+rand.Text()
	if _, err := m.Target.Replications().Sync(ctx, m.Table); err != nil {
		return 0, err
	}
	m.Report("making the source read-only")
	began := time.Now()
	if err := m.freeze(ctx); err != nil {
		return 0, err
	}
	if err := m.drain(ctx, began); err != nil {
		return 0, m.release(ctx, err)
	}
	if err := m.promote(ctx); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

type migration struct {
	Config
	before string // why the source was read-only before; empty if it was not
	mark   string // why it is now
}

// awaitFollowing returns when the table is copied, and its changes are made as they come.
func (m *migration) awaitFollowing(ctx context.Context) error {
	last := ""
	for {
		state, err := m.state(ctx)
		if err != nil {
			return err
		}
		if state.State == api.ReplicationFollowing {
			return nil
		}
		if state.State == api.ReplicationPaused {
			return fmt.Errorf("the replication of table %q is paused: resume it first (stele replication resume)", m.Table)
		}
		step := fmt.Sprintf("the table is not ready yet: %s, %d rows copied", state.State, state.Rows)
		if state.Error != "" {
			step += ": " + state.Error
		}
		if step != last {
			m.Report(step)
		}
		last = step
		if err := timing.Sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("table %q does not follow its source yet: %w", m.Table, err)
		}
	}
}

// state returns the state of the table's replication.
func (m *migration) state(ctx context.Context) (*api.ReplicationTable, error) {
	all, err := m.Target.Replications().List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		for j := range all[i].Tables {
			if t := &all[i].Tables[j]; t.Name == m.Table {
				return t, nil
			}
		}
	}
	return nil, fmt.Errorf("table %q: %w: let it follow the one to move first (stele replication add)", m.Table, api.ErrNotFollower)
}

// freeze makes the source's table read-only.
func (m *migration) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.PauseMax)
	defer cancel()
	err := m.setReadOnly(ctx, m.before, m.mark)
	var unknown *client.AmbiguousError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown), ctx.Err() != nil: // it may still be made
		return m.release(ctx, &StuckError{m.Table, fmt.Errorf("the source: %w", err)})
	}
	return fmt.Errorf("the source: %w", err)
}

// drain returns when the target has all changes of the source (MG1).
func (m *migration) drain(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, began.Add(m.PauseMax))
	defer cancel()
	reason, err := m.Target.Replications().Sync(ctx, m.Table)
	if err == nil && reason != m.mark {
		err = fmt.Errorf("table %q of the target: %w, or the source accepts changes again", m.Table, ErrOtherSource)
	}
	return err
}

// setReadOnly changes why the source's table is read-only.
func (m *migration) setReadOnly(ctx context.Context, from, to string) error {
	_, err := m.Source.Tables().Alter(ctx, m.Table, table.Change{Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{Reason: to, If: &from}})
	return err
}

// release makes the source's table what it was before, unless another migration works on it. This one does not promote it. If it was read-only before, then perhaps
// by another migration, which may be about to promote it (MG2). It returns cause, or a *StuckError.
func (m *migration) release(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := m.setReadOnly(ctx, m.mark, m.before)
	switch {
	case errors.Is(err, table.ErrReadOnlyChanged): // the first change was not made, or another one followed
		return cause
	case err != nil:
		return stuck(m.Table, errors.Join(cause, err))
	case m.before != "":
		return stuck(m.Table, cause)
	}
	m.Report("the source accepts changes again")
	var never *StuckError
	if errors.As(cause, &never) { // the first change was made, and is undone
		return never.Cause
	}
	return cause
}

func stuck(name string, cause error) error {
	if errors.As(cause, new(*StuckError)) {
		return cause
	}
	return &StuckError{name, cause}
}

// promote promotes the table. Once it has begun, the source stays read-only (MG2).
func (m *migration) promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := m.Target.Replications().Promote(ctx, m.Table)
	if errors.Is(err, api.ErrNotFollower) { // it was promoted by an attempt without an answer
		err = nil
	}
	if err != nil {
		return &StuckError{m.Table, fmt.Errorf("promote the table: %w", err)}
	}
	return nil
}
