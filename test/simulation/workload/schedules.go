package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

const (
	scheduleEvery  = api.ScheduleEveryMin
	scheduleKeep   = 6 * time.Hour // longer than any clock steps
	scheduleTime   = 90 * time.Second
	scheduleLooks  = 2 * time.Second // between two lists of the backups
	scheduledTries = 3               // backups of a schedule that are restored
)

// schedule has the cluster make backups of a table from time to time, and restores them. Each is an operation that lasts from a list without the backup
// to one that has it as made.
func (c *operator) schedule(all context.Context) {
	t := c.table()
	if t.Renamed { // a backup has the name that the table had when it was made
		return
	}
	name := fmt.Sprintf("schedule-%d-%d", c.number, c.history.number())
	ctx, cancel := context.WithTimeout(all, scheduleTime)
	defer cancel()
	since := c.history.Now()
	if err := c.createSchedule(ctx, name, t); err != nil {
		return
	}
	seen := map[string]bool{}
	for len(seen) < scheduledTries && ctx.Err() == nil {
		c.pause(ctx, scheduleLooks)
		now := c.history.Now()
		id, making := c.scheduled(ctx, name, seen)
		if id != "" {
			seen[id] = true
			op := c.begin(Op{Kind: ScheduledBackup, Table: t.Name, Families: t.familyNames(), Backup: &Backup{ID: id, Source: t.Name}})
			op.Call = since
			op = c.history.End(op, nil)
			c.restoreBackup(all, op.Backup)
			if c.r.IntN(2) == 0 {
				c.deleteBackup(all, op.Backup)
			}
		}
		if !making {
			since = now
		}
	}
	c.deleteSchedule(all, name)
}

// createSchedule creates a schedule, whose first backup is due at once. It retries until the context ends.
func (c *operator) createSchedule(ctx context.Context, name string, t *TablePlan) (err error) {
	for err = errNotMade; err != nil && ctx.Err() == nil; c.pause(ctx, time.Second) {
		op := c.begin(Op{Kind: CreateSchedule, Table: t.Name})
		err = c.db.Backups().CreateSchedule(ctx, client.ScheduleSpec{Name: name, Tables: []string{t.Name}, Every: scheduleEvery, Keep: scheduleKeep})
		if c.history.End(op, err); errors.Is(err, client.ErrNoTable) {
			break
		}
		known, failed := c.db.Backups().Schedules(ctx)
		for i := range known {
			if failed == nil && known[i].Name == name {
				err = nil
			}
		}
	}
	return err
}

// scheduled returns a backup of a schedule that is made and was not seen before, if there is one, and whether there may be a further one.
func (c *operator) scheduled(ctx context.Context, name string, seen map[string]bool) (id string, making bool) {
	backups, err := c.db.Backups().List(ctx)
	for i := range backups {
		b := &backups[i]
		if b.Schedule != name || seen[b.ID] {
			continue
		}
		if b.State == api.BackupMade && id == "" {
			id = b.ID
			continue
		}
		making = making || b.State != api.BackupFailed
	}
	return id, making || err != nil
}

func (c *operator) deleteSchedule(all context.Context, name string) {
	for range 3 {
		ctx, cancel := c.timeout(all)
		op := c.begin(Op{Kind: DeleteSchedule})
		op = c.history.End(op, c.db.Backups().DeleteSchedule(ctx, name))
		cancel()
		if op.Outcome == OK || op.Reason == NoBackup || all.Err() != nil {
			return
		}
	}
}
