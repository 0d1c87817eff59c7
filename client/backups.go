package client

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Backup describes a backup.
type Backup = api.BackupInfo

// Backups makes and restores backups of tables inside the cluster. List requires the right to read the
// cluster, the other methods that to administer it.
type Backups struct{ calls *caller }

// Backups returns the backups of the cluster.
func (c *Client) Backups() Backups { return Backups{&c.calls} }

// Create begins a backup of tables, of all tables if none is given, and returns its id. The cluster makes it; see Wait. What is
// acknowledged before the call is in it, and each row of it is as it was at some moment until it is made. It copies no data: it keeps
// the tables' files. keep is how long it is kept; 0 means until it is deleted. Errors: ErrNoTable, ErrSystemTable, *table.LimitError,
// ErrPermission, *AmbiguousError, and those of Tables.List.
func (b Backups) Create(ctx context.Context, keep time.Duration, tables ...string) (id string, err error) {
	req := api.CreateBackupRequest{Tables: tables, Keep: keep}
	err = b.calls.do(ctx, &call{method: api.MethodCreateBackup, change: true, encode: req.Append, decode: func(d *wire.Decoder) error {
		id = d.Str()
		return d.Err()
	}})
	return id, err
}

// CreateAt begins a backup of one table of another backup, as the table was at a later time, and returns its id: the other backup, and the
// table's changes up to and including that time. See Wait. It is complete for the rows of each tablet by the clock of the server that had
// it then. The table has a change stream, and may have been dropped. keep is as for Create. Errors: ErrNoBackup, ErrBackupNotMade, ErrNoTable,
// api.ErrNoChangeStream, an *api.RestoreTimeError if the table cannot be restored to that time, and those of Create.
func (b Backups) CreateAt(ctx context.Context, keep time.Duration, id, tableName string, at time.Time) (made string, err error) {
	req := api.CreateBackupRequest{Tables: []string{tableName}, Keep: keep, From: id, To: at.UnixMicro()}
	err = b.calls.do(ctx, &call{method: api.MethodCreateBackup, change: true, encode: req.Append, decode: func(d *wire.Decoder) error {
		made = d.Str()
		return d.Err()
	}})
	return made, err
}

// List returns all backups, the oldest first. Errors: ErrPermission, and those of Tables.List.
func (b Backups) List(ctx context.Context) ([]Backup, error) {
	all, after := []Backup{}, ""
	for {
		page, err := b.after(ctx, after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

func (b Backups) after(ctx context.Context, id string) ([]Backup, error) {
	var page api.Backups
	err := b.calls.query(ctx, api.MethodListBackups, []string{id}, page.Decode)
	return page.Backups, err
}

// Find returns a backup. Errors: ErrNoBackup, and those of List.
func (b Backups) Find(ctx context.Context, id string) (*Backup, error) {
	for after := id[:max(0, len(id)-1)]; ; { // so that the first page has it
		page, err := b.after(ctx, after)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if page[i].ID == id {
				return &page[i], nil
			}
		}
		if len(page) == 0 || page[len(page)-1].ID > id {
			return nil, fmt.Errorf("backup %.80q: %w", id, ErrNoBackup)
		}
		after = page[len(page)-1].ID
	}
}

// waitPause is the pause between two looks at a backup that is being made.
const waitPause = 200 * time.Millisecond

// Wait waits until a backup is made. If it fails, the error is an ErrBackupNotMade with the reason. Other errors: those of Find.
func (b Backups) Wait(ctx context.Context, id string) (*Backup, error) {
	for {
		x, err := b.Find(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case x.State == api.BackupMade:
			return x, nil
		case x.State == api.BackupFailed:
			return x, fmt.Errorf("backup %s failed: %w: %s", id, ErrBackupNotMade, x.Error)
		}
		if err := timing.Sleep(ctx, waitPause); err != nil {
			return x, err
		}
	}
}

// Delete deletes a backup, or cancels one that is being made. Files that no table and no other backup has are removed by the next garbage
// collections. Errors: ErrNoBackup, *AmbiguousError, and those of List.
func (b Backups) Delete(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return b.calls.do(ctx, &call{method: api.MethodDeleteBackup, change: true, encode: req.Append})
}

// Cancel deletes a backup that is being made. Errors: a bad request if it is made or has failed; those of Delete.
func (b Backups) Cancel(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}, Making: true}
	return b.calls.do(ctx, &call{method: api.MethodDeleteBackup, change: true, encode: req.Append})
}

// Restore creates a table named as from a table of a backup. It copies no data: the new table shares the backup's files until compactions
// replace them. It has the schema of that time, and rights, owner and quota of a new table. Errors: ErrNoBackup, ErrBackupNotMade,
// ErrNoTable if the backup has no such table, ErrTableExists, ErrBadName, *AmbiguousError, and those of List.
func (b Backups) Restore(ctx context.Context, id, tableName, as string) (*table.Schema, error) {
	req := api.NamesRequest{Names: []string{id, tableName, as}}
	return Tables(b).alter(ctx, api.MethodRestoreBackup, req.Append)
}

// BackupFile is a file of a backup.
type BackupFile = api.BackupFile

// Files calls each for the files of a backup, the manifest first and each file once, and stops at its error. It requires the right to administer the cluster.
// Errors: ErrNoBackup, ErrBackupNotMade, and those of List.
func (b Backups) Files(ctx context.Context, id string, each func(*BackupFile) error) error {
	seen := map[string]bool{} // tablets share files
	for from := int64(0); ; {
		req := api.BackupFilesRequest{ID: id, From: from}
		var page api.BackupFiles
		if err := b.calls.do(ctx, &call{method: api.MethodBackupFiles, safe: true, encode: req.Append, decode: page.Decode}); err != nil {
			return err
		}
		for i := range page.Files {
			if seen[page.Files[i].ID] {
				continue
			}
			seen[page.Files[i].ID] = true
			if err := each(&page.Files[i]); err != nil {
				return err
			}
		}
		if from = page.Next; from == 0 {
			return nil
		}
	}
}

// Read reads up to len(p) bytes, at most 1 MiB, of a file of a backup at off. It reads none beyond its end. Errors: those of Files, and of
// Blobs.Read.
func (b Backups) Read(ctx context.Context, id string, f *BackupFile, p []byte, off int64) (n int, err error) {
	req := api.ReadBackupRequest{ID: id, Handle: f.Handle, Offset: off, Length: int64(min(len(p), api.BlobPieceBytesMax))}
	err = b.calls.do(ctx, &call{method: api.MethodReadBackup, safe: true, encode: req.Append, decode: func(d *wire.Decoder) error {
		if !d.IsNil() {
			n = copy(p, d.Bytes())
		}
		return d.Err()
	}})
	return n, err
}

// Import makes a backup of staged blobs, for a day, and returns its id. manifest is the blob with the manifest, files that with pairs of the
// id that each file has in the manifest and the id of its staged blob, 16 bytes each. When it returns, the staged blobs may be deleted.
// Errors: ErrNoBlob, *AmbiguousError, and those of List.
func (b Backups) Import(ctx context.Context, manifest, files string) (id string, err error) {
	req := api.NamesRequest{Names: []string{manifest, files}}
	err = b.calls.do(ctx, &call{method: api.MethodImportBackup, change: true, encode: req.Append, decode: func(d *wire.Decoder) error {
		id = d.Str()
		return d.Err()
	}})
	return id, err
}

// Schedule describes a schedule of backups.
type Schedule = api.ScheduleInfo

// ScheduleSpec is a new schedule of backups.
type ScheduleSpec struct {
	Name string
	// Tables are the names of the tables. They stay in the schedule if they are renamed. None: all tables, also those that are created later.
	Tables []string
	// Every is the time from one backup to the next, at least a minute. Keep is how long each is kept; but the newest that is made is not deleted.
	Every, Keep time.Duration
	// First is the time of the first backup; zero: now.
	First time.Time
}

// CreateSchedule has the cluster make backups from time to time. Errors: ErrNoTable, ErrSystemTable, a bad request if there is a schedule with that name,
// *table.LimitError, ErrPermission, *AmbiguousError, and those of List.
func (b Backups) CreateSchedule(ctx context.Context, s ScheduleSpec) error {
	req := api.CreateScheduleRequest{Name: s.Name, Tables: s.Tables, Every: s.Every, Keep: s.Keep, First: s.First}
	return b.calls.do(ctx, &call{method: api.MethodCreateBackupSchedule, change: true, encode: req.Append})
}

// Schedules returns the schedules, by name. Errors: ErrPermission, and those of List.
func (b Backups) Schedules(ctx context.Context) ([]Schedule, error) {
	var all api.Schedules
	err := b.calls.query(ctx, api.MethodListBackupSchedules, nil, all.Decode)
	return all.Schedules, err
}

// DeleteSchedule deletes a schedule. Its backups stay until they expire, the newest that is made until it is deleted. Errors: ErrNoBackup if there is no such
// schedule, ErrPermission, *AmbiguousError, and those of List.
func (b Backups) DeleteSchedule(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return b.calls.do(ctx, &call{method: api.MethodDeleteBackupSchedule, change: true, encode: req.Append})
}

// Replication describes a replication of tables of another cluster.
type Replication = api.ReplicationInfo

// ReplicationSpec describes a replication to be created.
type ReplicationSpec = api.CreateReplicationRequest

// Replications manages the tables of this cluster that follow those of other ones. List requires the right to read the cluster, the
// other methods that to administer it.
type Replications struct{ calls *caller }

// Replications returns the replications of the cluster.
func (c *Client) Replications() Replications { return Replications{&c.calls} }

// Create creates a replication, and its tables, which must not exist. Errors: api.ErrReplicationExists, ErrTableExists, ErrBadName, those of
// a client of the source, *AmbiguousError, and those of Tables.List.
func (r Replications) Create(ctx context.Context, spec *ReplicationSpec) error {
	return r.calls.do(ctx, &call{method: api.MethodCreateReplication, change: true, encode: spec.Append})
}

// List returns all replications, with the state of their tables. Errors: ErrPermission, and those of Tables.List.
func (r Replications) List(ctx context.Context) ([]Replication, error) {
	var all api.Replications
	err := r.calls.query(ctx, api.MethodListReplications, nil, all.Decode)
	return all.Replications, err
}

// Pause stops a replication until Resume. Errors: api.ErrNoReplication, and those of List.
func (r Replications) Pause(ctx context.Context, name string) error {
	return r.change(ctx, api.MethodPauseReplication, name)
}

// Resume continues a replication where it was paused. Errors: those of Pause.
func (r Replications) Resume(ctx context.Context, name string) error {
	return r.change(ctx, api.MethodResumeReplication, name)
}

// Remove ends a replication. Its tables accept changes only after Promote. Errors: those of Pause.
func (r Replications) Remove(ctx context.Context, name string) error {
	return r.change(ctx, api.MethodRemoveReplication, name)
}

// Promote makes a table that follows another one an ordinary table, with what it has. When it returns, no more changes of the source are made.
// Errors: ErrNoTable, api.ErrNotFollower, and those of List.
func (r Replications) Promote(ctx context.Context, tableName string) error {
	return r.change(ctx, api.MethodPromoteTable, tableName)
}

// Sync returns when a table that follows another one has all changes that the source had acknowledged before the call, and why the source's table was read-only
// before; empty if it was not. Errors: ErrNoTable, api.ErrNotFollower, and those of List.
func (r Replications) Sync(ctx context.Context, tableName string) (readOnly string, err error) {
	var result api.ReplicationSynced
	err = r.calls.query(ctx, api.MethodSyncReplication, []string{tableName}, result.Decode)
	return result.ReadOnly, err
}

// change makes a change that may be repeated.
func (r Replications) change(ctx context.Context, method, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return r.calls.do(ctx, &call{method: method, change: true, safe: true, encode: req.Append})
}

// Follow makes a change of a table that follows another one by a replication, unless its row has it already. It is for nodes. id is that of the table; 0 means
// any. part is nil unless the change is a part of a row. Errors: those of Apply, and api.ErrNotFollower.
func (t *Table) Follow(ctx context.Context, replication string, id uint64, c *Change, part *api.RowPart) (made api.Followed, err error) {
	req := api.FollowRequest{Table: t.name, Replication: replication, Change: *c, Part: part}
	k := call{method: api.MethodFollow, table: t.name, row: c.Row, id: &req.TableID, onlyID: id, change: true, safe: true, encode: req.Append}
	k.decode = func(d *wire.Decoder) error {
		made = api.Followed(d.Int())
		return d.Err()
	}
	err = t.client.calls.do(ctx, &k)
	return made, err
}
