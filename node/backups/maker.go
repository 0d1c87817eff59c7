package backups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backup"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/tablet"
)

const (
	// makerPoll is how often the master looks for backups to make or to delete. A request to the master's node wakes it sooner.
	makerPoll = time.Second
	// mastershipPoll is how often it checks whether it is the master still.
	mastershipPoll = time.Second
	// makerRetry is the pause after a failure.
	makerRetry = 2 * time.Second
	// makingMax is how long a backup is tried again after failures. Garbage waits meanwhile, so this is less than the wait of package roots.
	makingMax = 10 * time.Minute
	// errorMax bounds the text of an error in a record, in bytes.
	errorMax = 500
)

func (s *Service) nudge() {
	for _, wake := range []chan struct{}{s.wake, s.replays} {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Run makes backups of present tables and deletes expired ones while this node is the master, until it closes.
func (s *Service) Run() {
	s.runAs(s.wake, func(ctx context.Context) (again bool, err error) {
		again, err = s.work(ctx)
		return again, errors.Join(err, s.expireStaged(ctx))
	})
}

// RunReplays makes backups for a time while this node is the master, until it closes. They may take long, and others do not wait for them.
func (s *Service) RunReplays() { s.runAs(s.replays, s.workReplays) }

// runAs repeats work while this node is the master.
func (s *Service) runAs(wake <-chan struct{}, work func(ctx context.Context) (again bool, err error)) {
	var failed loglimit.OnChange
	repeat(s.Ctx, wake, func() bool {
		epoch := s.MasterEpoch()
		if epoch == 0 {
			return true
		}
		ctx, stop := timing.While(s.Ctx, mastershipPoll, func() bool { return s.MasterEpoch() == epoch })
		again, err := work(ctx)
		stop()
		if s.Ctx.Err() == nil && s.MasterEpoch() == epoch {
			failed.WarnError(s.Log, "make and delete backups; will try again", err)
		}
		return !again && err == nil
	})
}

// repeat calls work when it is woken, makerPoll after a success, and makerRetry after a failure, until the context ends. There is one timer, so that
// failures do not multiply the calls.
func repeat(ctx context.Context, wake <-chan struct{}, work func() (ok bool)) {
	next := time.NewTimer(makerPoll)
	defer next.Stop()
	for {
		select {
		case <-wake:
		case <-next.C:
		case <-ctx.Done():
			return
		}
		pause := makerPoll
		if !work() {
			pause = makerRetry
		}
		next.Reset(pause)
	}
}

// work begins the backups that are due, makes all of present tables that are to be made, and deletes expired ones. again means that one was not made.
func (s *Service) work(ctx context.Context) (again bool, err error) {
	schedules := scheduler{s}
	due := schedules.run(ctx, time.Now())
	all, err := schedules.all(ctx)
	if err != nil {
		return false, errors.Join(due, err)
	}
	for _, x := range all {
		if x.rec.State == backup.Making && x.rec.Replay == nil { // else RunReplays makes it
			made, makeErr := s.makeOne(ctx, x.id)
			again = again || !made
			err = errors.Join(err, makeErr)
		}
	}
	return again, errors.Join(due, err, schedules.expireAll(ctx, time.Now()))
}

// own runs a change on behalf of this node.
func (s *Service) own(ctx context.Context, do func(ctx context.Context) error) error {
	node := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: s.ID()}}
	return s.Changes.Do(ctx, authz.ChangeRequest{Caller: node}, do)
}

// expire deletes a backup whose time is over.
func (s *Service) expire(ctx context.Context, id string) error {
	err := s.own(ctx, func(ctx context.Context) error { return s.removeNow(ctx, id, false) })
	if errors.Is(err, api.ErrNoBackup) {
		return nil
	}
	return err
}

// makeOne makes a backup, and records that it is made or has failed. It returns false if it is to be tried again.
func (s *Service) makeOne(ctx context.Context, id string) (done bool, err error) {
	rec, gen, err := s.Roots.Backup(ctx, id)
	if errors.Is(err, api.ErrNoBackup) {
		return true, nil
	}
	if err != nil || rec.State != backup.Making {
		return err == nil, err
	}
	moment.Pass("before a backup is made", "")
	made := *rec
	var files pins
	defer s.release(&files)
	err = s.makeManifest(ctx, &made, &files)
	if ctx.Err() != nil || s.MasterEpoch() == 0 {
		return false, nil // the next master begins again: an error may only mean that this node closes
	}
	if err == nil {
		defer s.Store().Release(made.Manifest.ID)
		made.State, made.Ended, made.Error = backup.Made, time.Now(), ""
		moment.Pass("before a backup is recorded", "")
	} else {
		made = *rec
		made.Error = fmt.Sprintf("%.*s", errorMax, err)
		if passes := time.Since(rec.Created).Abs() < makingMax && !lasts(err); !passes {
			made.State, made.Ended = backup.Failed, time.Now()
		} else if made.Error == rec.Error {
			return false, nil
		}
		s.Log.Warn("backup not made", "backup", id, "err", err)
	}
	err = s.own(ctx, func(ctx context.Context) error {
		_, err := s.Catalog.Set(ctx, backup.Path(id), made.Encode(), gen)
		return err
	})
	if errors.Is(err, metaapi.ErrGeneration) || errors.Is(err, metaapi.ErrNotFound) {
		return true, nil // it was deleted
	}
	if err == nil && made.State == backup.Made {
		s.Log.Info("backup made", "backup", id, "tablets", made.Tablets, "bytes", made.Bytes, "took", made.Ended.Sub(made.Created))
	}
	return made.State != backup.Making, err
}

// lasts reports whether an error does not pass.
func lasts(err error) bool {
	return errors.Is(err, api.ErrNoTable) || errors.Is(err, api.ErrNoBackup) || errors.Is(err, api.ErrBackupNotMade) ||
		errors.Is(err, api.ErrRestoreTime) || errors.Is(err, api.ErrNoChangeStream) || full(err)
}

// full reports whether disks are full. A backup gives up then: garbage, which waits for it, is what frees space.
func full(err error) bool {
	return errors.Is(err, api.ErrDiskFull) || errors.Is(err, blobfs.ErrDiskFull)
}

// manifestBuffer is the size of a write to the manifest's blob, in bytes.
const manifestBuffer = 64 << 10

// makeManifest takes snapshots of all tablets, or makes those of a time, and seals a manifest of them. The blob, and files that are written,
// are in use on this node until they are released.
func (s *Service) makeManifest(ctx context.Context, rec *backup.Record, files *pins) error {
	if rec.Replay != nil {
		return s.replay(ctx, rec, files)
	}
	return s.sealManifest(ctx, rec, func(w *bufio.Writer) ([]backup.Table, error) { return s.writeManifest(ctx, w, rec.Tables) })
}

// sealManifest seals what write writes, and records it. The blob is in use on this node until it is released.
func (s *Service) sealManifest(ctx context.Context, rec *backup.Record, write func(w *bufio.Writer) ([]backup.Table, error)) error {
	blob, err := s.Store().Create(ctx)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(blob, manifestBuffer)
	tables, err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		blob.Abort()
		return err
	}
	if rec.Manifest, err = blob.Seal(ctx); err != nil {
		blob.Abort()
		return err
	}
	rec.Tablets, rec.Bytes = 0, 0
	for i := range tables {
		rec.Tablets += tables[i].Tablets
		rec.Bytes += tables[i].Bytes
	}
	return nil
}

func (s *Service) writeManifest(ctx context.Context, to *bufio.Writer, names []string) ([]backup.Table, error) {
	w := backup.NewWriter(to)
	for _, name := range names {
		if err := s.addTable(ctx, w, name); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

// addTable adds a table to a manifest. The schema is read last: it has all families of which there may be cells. A family that is dropped
// meanwhile is not in the backup.
func (s *Service) addTable(ctx context.Context, w *backup.Writer, name string) error {
	schema, _, err := s.Catalog.Schema(ctx, name)
	if err != nil {
		return err
	}
	if err := s.Tablets.Snapshots(ctx, schema, func(m *tablet.Meta) error {
		moment.Pass("a tablet is in a backup", "")
		return w.Add(m)
	}); err != nil {
		return fmt.Errorf("table %q: %w", name, err)
	}
	id := schema.ID
	if schema, _, err = s.Catalog.Schema(ctx, name); err != nil {
		return err
	}
	if schema.ID != id {
		return fmt.Errorf("table %q was dropped and created again: %w", name, api.ErrNoTable)
	}
	return w.EndTable(schema)
}
