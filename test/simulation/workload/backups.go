package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
)

// backupTime bounds how long a client waits for a backup, or tries to restore it and to read the restored table.
const backupTime = 40 * time.Second

// backupPause bounds the pauses between two uses of a backup.
const backupPause = 5 * time.Second

// backup makes a backup of a table, mostly while it is used, and restores it, sometimes twice. It deletes the backup, the restored tables, both
// or neither. The restored tables are not written, so that each read of one must return the same.
func (c *operator) backup(all context.Context) {
	t := c.table()
	ctx, cancel := context.WithTimeout(all, backupTime)
	defer cancel()
	using, stop := context.WithCancel(ctx)
	uses := c.useBeside(using, t)
	moves := c.moveBeside(using, t)
	b, made := c.makeBackup(ctx, t)
	if made && t.Stream && c.r.IntN(2) == 0 {
		b, made = c.makeBackupAt(ctx, t, b)
	}
	stop()
	uses.Wait()
	moves.Wait()
	if !made {
		return
	}
	deleted := false
	for range 1 + c.r.IntN(2) {
		c.pause(all, backupPause)
		c.restoreBackup(all, b)
		if !deleted && all.Err() == nil && c.r.IntN(3) == 0 {
			deleted = true
			c.deleteBackup(all, b)
		}
	}
}

// makeBackup makes a backup of a table, sometimes of all, and waits until it is made. The operation lasts until then.
func (c *operator) makeBackup(ctx context.Context, t *TablePlan) (*Backup, bool) {
	op := c.begin(Op{Kind: CreateBackup, Table: t.Name, Families: t.familyNames(), Backup: &Backup{Source: t.Name}})
	var names []string
	if c.r.IntN(4) > 0 {
		names = append(names, t.Name)
	}
	id, err := c.db.Backups().Create(ctx, 0, names...)
	return c.awaitBackup(ctx, op, id, err)
}

// makeBackupAt makes a backup of a table as it was at a moment since another backup was made, while it is used.
func (c *operator) makeBackupAt(ctx context.Context, t *TablePlan, b *Backup) (*Backup, bool) {
	since := c.history.micros()
	c.pause(ctx, backupPause)
	at := since + c.r.Int64N(c.history.micros()-since+1)
	c.pause(ctx, backupPause)
	op := c.begin(Op{Kind: BackupAt, Table: t.Name, Families: t.familyNames(), Backup: &Backup{Source: t.Name, At: at}})
	id, err := c.db.Backups().CreateAt(ctx, 0, b.ID, t.Name, c.history.started.Add(time.Duration(at)*time.Microsecond))
	return c.awaitBackup(ctx, op, id, err)
}

// awaitBackup waits until a backup is made, and records its end.
func (c *operator) awaitBackup(ctx context.Context, op Op, id string, err error) (*Backup, bool) {
	if err != nil {
		c.history.End(op, err)
		return nil, false
	}
	op.Backup = &Backup{ID: id, Source: op.Backup.Source, At: op.Backup.At}
	for err = errNotMade; err != nil; {
		if _, err = c.db.Backups().Wait(ctx, id); errors.Is(err, client.ErrBackupNotMade) || errors.Is(err, client.ErrNoBackup) {
			break
		}
		if ctx.Err() != nil {
			return nil, false // its outcome is unknown
		}
		c.pause(ctx, time.Second)
	}
	op = c.history.End(op, err)
	return op.Backup, err == nil
}

// errNotMade means that it is not known whether a backup is made.
var errNotMade = errors.New("not known to be made")

// restoreBackup restores a table, reads it, and sometimes drops it.
func (c *operator) restoreBackup(all context.Context, b *Backup) {
	as := fmt.Sprintf("restored-%d-%d", c.number, c.history.number())
	ctx, cancel := context.WithTimeout(all, backupTime)
	defer cancel()
	for ctx.Err() == nil {
		op := c.begin(Op{Kind: RestoreBackup, Table: as, Backup: b})
		_, err := c.db.Backups().Restore(ctx, b.ID, b.Source, as)
		c.history.End(op, err)
		if err == nil || errors.Is(err, client.ErrTableExists) {
			break
		}
		if errors.Is(err, client.ErrNoBackup) {
			return
		}
		c.pause(ctx, time.Second)
	}
	for range 1 + c.r.IntN(2) {
		for ctx.Err() == nil && c.scanRestored(ctx, as, b, false).Outcome != OK {
			c.pause(ctx, time.Second)
		}
		if c.r.IntN(2) == 0 {
			op := c.begin(Op{Kind: Compact, Table: as})
			c.history.End(op, c.db.Tablets().Compact(ctx, as, client.TabletRef{Row: c.row()}, c.r.IntN(2) == 0))
		}
		c.pause(ctx, backupPause)
	}
	for c.r.IntN(3) > 0 && all.Err() == nil {
		ctx, cancel := c.timeout(all)
		op := c.begin(Op{Kind: Drop, Table: as})
		op = c.history.End(op, c.db.Tables().DropNow(ctx, as))
		cancel()
		if op.Outcome == OK || op.Reason == NoTable {
			return
		}
	}
}

// scanRestored reads a restored table.
func (c *worker) scanRestored(ctx context.Context, as string, b *Backup, final bool) Op {
	op := c.begin(Op{Kind: ScanRestored, Table: as, Backup: b, Scan: &Scan{}, Final: final})
	result := Scan{}
	rows := c.db.Table(as).Scan(ctx, client.BatchRows(1+c.r.IntN(20)))
	for rows.Next() {
		result.Rows = append(result.Rows, ScanRow{string(rows.Row().Key), c.history.cells(rows.Row())})
	}
	err := rows.Close()
	result.Whole = err == nil
	op.Scan = &result
	return c.history.End(op, err)
}

func (c *operator) deleteBackup(all context.Context, b *Backup) {
	ctx, cancel := c.timeout(all)
	defer cancel()
	op := c.begin(Op{Kind: DeleteBackup, Backup: b})
	c.history.End(op, c.db.Backups().Delete(ctx, b.ID))
}

// listBackups lists all backups.
func (c *worker) listBackups(ctx context.Context, final bool) Op {
	op := c.begin(Op{Kind: ListBackups, Backup: &Backup{}, Final: final})
	all, err := c.db.Backups().List(ctx)
	result := Backup{}
	for i := range all {
		result.IDs = append(result.IDs, all[i].ID)
	}
	op.Backup = &result
	return c.history.End(op, err)
}

// readRestored reads the tables that were restored and read before, and lists the backups.
func (c *reader) readRestored(ctx context.Context) error {
	seen := map[string]bool{}
	for _, op := range c.history.Ops() {
		if op.Kind != ScanRestored || op.Outcome != OK || seen[op.Table] {
			continue
		}
		seen[op.Table] = true
		if err := c.until(ctx, func(ctx context.Context) Op { return c.scanRestored(ctx, op.Table, op.Backup, true) }); err != nil {
			return err
		}
	}
	if !c.plan.Has(Backups) {
		return nil
	}
	return c.until(ctx, func(ctx context.Context) Op { return c.listBackups(ctx, true) })
}
