package backups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// scheduler has the schedules of backups. Its run of a due time creates the record of a backup whose id depends on the schedule and that time alone, and then notes
// the run in the schedule. Whichever master dies in between, the next one finds the record, so that no due time has two backups (BU7).
type scheduler struct{ *Service }

func (s scheduler) create(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.CreateScheduleRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller := authz.SubjectOf(c)
	err := s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodCreateBackupSchedule, Name: r.Name}, func(ctx context.Context) error {
		return s.add(ctx, &r, caller.Owner(), time.Now())
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	s.nudge()
	c.Reply(nil)
}

// add writes a new schedule, within a change.
func (s scheduler) add(ctx context.Context, r *api.CreateScheduleRequest, by string, now time.Time) error {
	rec := &backup.Schedule{Created: now, By: by, Every: r.Every, Keep: r.Keep, First: r.First}
	if rec.First.IsZero() {
		rec.First = now
	}
	for i, name := range r.Tables {
		if metadata.IsSystem(name) {
			return fmt.Errorf("table %q: %w", name, api.ErrSystemTable)
		}
		schema, _, err := s.Catalog.Schema(ctx, name)
		if err != nil {
			return err
		}
		if slices.Contains(r.Tables[:i], name) {
			return rpc.Errorf(rpc.CodeBadRequest, "table %.80q is given twice", name)
		}
		rec.Tables = append(rec.Tables, backup.ScheduledTable{ID: schema.ID, Name: name})
	}
	names, err := s.Catalog.List(ctx, backup.SchedulesDir)
	if err != nil {
		return err
	}
	if slices.Contains(names, r.Name) {
		return rpc.Errorf(rpc.CodeBadRequest, "there is a schedule %s: delete it before", r.Name)
	}
	if n := int64(len(names)); n >= api.SchedulesMax {
		return &table.LimitError{What: "schedules of backups", Limit: api.SchedulesMax, Got: n + 1}
	}
	_, err = s.Catalog.Set(ctx, backup.SchedulePath(r.Name), rec.Encode(), 0)
	if err == nil {
		s.Log.Info("backup schedule created", "schedule", r.Name, "every", r.Every, "keep", r.Keep)
	}
	return err
}

func (s scheduler) remove(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	name := r.Names[0]
	return nil, s.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error {
		err := api.CheckScheduleName(name)
		if err == nil {
			err = s.Catalog.Remove(ctx, backup.SchedulePath(name), metaapi.AnyGeneration)
		}
		if errors.Is(err, metaapi.ErrNotFound) {
			return noSchedule(name)
		}
		if err == nil {
			s.Log.Info("backup schedule deleted", "schedule", name)
		}
		return err
	})
}

func noSchedule(name string) error {
	return fmt.Errorf("backup schedule %.80q: %w", name, api.ErrNoBackup)
}

// read returns a schedule and the generation of its file.
func (s scheduler) read(ctx context.Context, name string) (*backup.Schedule, uint64, error) {
	f, err := s.Roots.Meta.Current().Get(ctx, backup.SchedulePath(name))
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, noSchedule(name)
	}
	if err != nil {
		return nil, 0, err
	}
	rec, err := backup.DecodeSchedule(f.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.Path, err)
	}
	return rec, f.Generation, nil
}

// each calls a function for all schedules, and stops at its error.
func (s scheduler) each(ctx context.Context, f func(name string, rec *backup.Schedule) error) error {
	names, err := s.Catalog.List(ctx, backup.SchedulesDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		rec, _, err := s.read(ctx, name)
		if errors.Is(err, api.ErrNoBackup) {
			continue // deleted meanwhile
		}
		if err == nil {
			err = f(name, rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run begins the backups that are due. One schedule that fails does not hold up the others.
func (s scheduler) run(ctx context.Context, now time.Time) error {
	var failed error
	err := s.each(ctx, func(name string, rec *backup.Schedule) error {
		if rec.Due(now).IsZero() {
			return nil
		}
		err := s.own(ctx, func(ctx context.Context) error { return s.begin(ctx, name, now) })
		if err != nil && !errors.Is(err, api.ErrNoBackup) {
			failed = errors.Join(failed, fmt.Errorf("backup schedule %s: %w", name, err))
		}
		return ctx.Err()
	})
	return errors.Join(failed, err)
}

// begin begins the backup of a schedule that is due, within a change.
func (s scheduler) begin(ctx context.Context, name string, now time.Time) error {
	rec, gen, err := s.read(ctx, name)
	if err != nil {
		return err
	}
	due := rec.Due(now)
	if due.IsZero() {
		return nil
	}
	if last, _, err := s.Roots.Backup(ctx, rec.LastID); err == nil && last.State == backup.Making {
		return nil // that is made first
	}
	next := *rec
	id := backup.ScheduledID(name, due)
	next.Error, err = s.request(ctx, id, name, rec, now)
	if err != nil {
		return err
	}
	if next.Error == "" || strings.HasPrefix(next.Error, leftOut) {
		next.Last, next.LastID = due, id
		s.Log.Info("scheduled backup requested", "schedule", name, "backup", id, "due", due)
	} else if next.Error == rec.Error {
		return nil // reported before
	} else {
		s.Log.Warn("scheduled backup not requested; will try again", "schedule", name, "err", next.Error)
	}
	moment.Pass("before a run of a schedule is recorded", "")
	_, err = s.Catalog.Set(ctx, backup.SchedulePath(name), next.Encode(), gen)
	return err
}

// leftOut begins the text about tables that a backup leaves out.
const leftOut = "left out: "

// request creates the record of a scheduled backup, unless a former master has. problem is why it does not, or what is left out of it.
func (s scheduler) request(ctx context.Context, id, name string, rec *backup.Schedule, now time.Time) (problem string, err error) {
	names, err := s.Roots.Meta.Tables(ctx)
	if err != nil {
		return "", err
	}
	tables, gone := tablesOf(names, rec)
	if len(gone) > 0 {
		problem = fmt.Sprintf("%.*s", errorMax, leftOut+"there is no table "+strings.Join(gone, ", "))
	}
	if len(tables) == 0 {
		return "there is no table to back up", nil
	}
	ids, err := s.Catalog.List(ctx, backup.Dir)
	if err != nil || slices.Contains(ids, id) {
		return problem, err
	}
	if len(ids) >= api.BackupsMax || len(tables) > api.BackupTablesMax {
		return fmt.Sprintf("there are %d backups, at most %d, and %d tables, at most %d", len(ids), api.BackupsMax, len(tables), api.BackupTablesMax), nil
	}
	b := &backup.Record{State: backup.Making, Created: now, Expires: now.Add(rec.Keep), By: rec.By, Tables: tables, Schedule: name}
	_, err = s.Catalog.Set(ctx, backup.Path(id), b.Encode(), 0)
	return problem, err
}

// tablesOf returns the present names of the tables of a schedule, and the names of those that do not exist. names are those of all tables by id.
func tablesOf(names map[uint64]string, rec *backup.Schedule) (tables, gone []string) {
	live := map[string]bool{}
	for _, name := range names {
		if live[name] = !table.IsDropped(name); rec.Tables == nil && live[name] {
			tables = append(tables, name)
		}
	}
	for _, t := range rec.Tables {
		name := names[t.ID]
		if !live[name] { // another table may have its name
			name = t.Name
		}
		if !live[name] {
			gone = append(gone, name)
		} else if !slices.Contains(tables, name) {
			tables = append(tables, name)
		}
	}
	slices.Sort(tables)
	return tables, gone
}

// entry is the record of a backup.
type entry struct {
	id  string
	rec *backup.Record
}

// all returns all backups, in order of their ids.
func (s scheduler) all(ctx context.Context) (all []entry, err error) {
	err = s.Roots.Backups(ctx, func(id string, rec *backup.Record) error {
		all = append(all, entry{id, rec})
		return nil
	})
	return all, err
}

// expireAll deletes expired backups, except for the newest of each schedule that is made (BU8), and notes the state of the schedules.
func (s scheduler) expireAll(ctx context.Context, now time.Time) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	found := histories(all)
	for _, x := range all {
		if x.rec.Expires.IsZero() || now.Before(x.rec.Expires) || x.rec.State == backup.Making {
			continue
		}
		if h := found[x.rec.Schedule]; h != nil && h.good == x.id {
			continue
		}
		err = errors.Join(err, s.expire(ctx, x.id))
	}
	infos, infoErr := s.infos(ctx, now, nil)
	if infoErr == nil {
		s.schedules.Store(&infos)
	}
	return errors.Join(err, infoErr)
}

// history is what the records of backups have about a schedule.
type history struct {
	good, last string // ids of the newest backup that is made, and of the newest one
	goodAt     time.Time
	state      backup.State // of the newest one
	err        string       // of the newest one
	failures   int64        // since the newest that is made
}

// histories returns the histories of schedules by name. all has the backups in order of their ids.
func histories(all []entry) map[string]*history {
	found := map[string]*history{}
	for _, x := range all {
		if x.rec.Schedule == "" {
			continue
		}
		h := found[x.rec.Schedule]
		if h == nil {
			h = &history{}
			found[x.rec.Schedule] = h
		}
		h.last, h.state, h.err = x.id, x.rec.State, x.rec.Error
		switch x.rec.State {
		case backup.Made:
			h.good, h.goodAt, h.failures = x.id, x.rec.Created, 0
		case backup.Failed:
			h.failures++
		}
	}
	return found
}

func (s scheduler) list(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	names, err := s.Roots.Meta.Tables(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.infos(ctx, time.Now(), names)
	if err != nil {
		return nil, err
	}
	return (&api.Schedules{Schedules: all}).Append, nil
}

// infos describes all schedules, with their tables if names are given: those of all tables by id.
func (s scheduler) infos(ctx context.Context, now time.Time, names map[uint64]string) (all []api.ScheduleInfo, err error) {
	backups, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	found := histories(backups)
	err = s.each(ctx, func(name string, rec *backup.Schedule) error {
		i := infoOf(name, rec, now)
		if h := found[name]; h != nil {
			h.describe(&i)
		}
		if !i.All && names != nil {
			tables, gone := tablesOf(names, rec)
			i.Tables = append(tables, gone...)
		}
		all = append(all, i)
		return nil
	})
	return all, err
}

// infoOf describes a schedule without its backups.
func infoOf(name string, rec *backup.Schedule, now time.Time) api.ScheduleInfo {
	i := api.ScheduleInfo{
		Name: name, All: rec.Tables == nil, EveryMS: rec.Every.Milliseconds(), KeepMS: rec.Keep.Milliseconds(), CreatedMS: rec.Created.UnixMilli(),
		NextMS: rec.Next(now).UnixMilli(), LastBackup: rec.LastID, Error: rec.Error, By: rec.By,
	}
	if due := rec.Due(now); !due.IsZero() {
		i.NextMS = due.UnixMilli()
	}
	if !rec.Last.IsZero() {
		i.LastMS = rec.Last.UnixMilli()
	}
	return i
}

// describe adds the history to the description of a schedule.
func (h *history) describe(i *api.ScheduleInfo) {
	i.Failures = h.failures
	if h.good != "" {
		i.GoodMS = h.goodAt.UnixMilli()
	}
	if h.last == i.LastBackup {
		i.State = h.state.String()
		if i.Error == "" {
			i.Error = h.err
		}
	}
}

// register registers the methods of schedules.
func (s scheduler) register(r method.Registrar) {
	change := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("backup schedule"), Leader: authz.LeaderFirst}
	r.Handle(api.MethodCreateBackupSchedule, rpc.Spawned, change, s.create)
	r.HandleNames(api.MethodListBackupSchedules, 0, authz.Guard{To: authz.Right, Right: acl.Read, Leader: authz.LeaderThroughout}, s.list)
	r.HandleNames(api.MethodDeleteBackupSchedule, 1, change, s.remove)
}

// Collect sends the metrics of the schedules, while this node is the master.
func (s *Service) Collect(m metric.Sender) {
	state := s.schedules.Load()
	if state == nil || s.MasterEpoch() == 0 {
		return
	}
	for _, i := range *state {
		m.Gauge("backup_schedule_failures", "Backups of a schedule that have failed since the last one that was made; on the master's node.", float64(i.Failures), "schedule", i.Name)
		m.Gauge("backup_schedule_blocked", "1 if the backup of a schedule that is due could not be begun, or leaves tables out; on the master's node.", metric.Bool(i.Error != "" && i.Failures == 0), "schedule", i.Name)
		if i.GoodMS != 0 {
			m.Gauge("backup_schedule_good_timestamp_seconds", "When the newest backup of a schedule that was made was requested; on the master's node.", float64(i.GoodMS)/1000, "schedule", i.Name)
		}
	}
}
