package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// States of backups: the values of BackupInfo.State.
const (
	BackupMaking = "making"
	BackupMade   = "made"
	BackupFailed = "failed"
)

// Bounds of backups.
const (
	// BackupTablesMax is the number of tables of one backup.
	BackupTablesMax = 1000
	// BackupsMax is the number of backups of a cluster.
	BackupsMax = 1000
	// BackupKeepMax is the longest time for which a backup can be kept, unless it is kept until it is deleted: ten years. Longer times are
	// reduced to it.
	BackupKeepMax = 10 * 365 * 24 * time.Hour
	// BackupsPageMax is the number of backups in one result of list_backups.
	BackupsPageMax = 50
)

// CreateBackupRequest holds the parameters of create_backup:
//
//	[[table…], options?]    options: keep_ms, from, to_time
//
// The result is the backup's id.
type CreateBackupRequest struct {
	Options
	// Tables are the names of the tables; none: all tables.
	Tables []string
	// Keep is how long the backup is kept; 0: until it is deleted.
	Keep time.Duration
	// From is the id of a backup; empty: the backup is of the present tables. Otherwise it is of one table of that backup as it was at the time To,
	// in µs.
	From string
	To   int64
}

// Append encodes the parameters.
func (r *CreateBackupRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	if r.Keep > 0 {
		n++
	}
	if r.From != "" {
		n += 2
	}
	e.Array(1 + min(n, 1))
	e.Array(len(r.Tables))
	for _, name := range r.Tables {
		e.Str(name)
	}
	r.Options.append(e, n)
	if r.Keep > 0 {
		e.Str("keep_ms")
		e.Int(wholeMillis(r.Keep))
	}
	if r.From != "" {
		e.Str("from")
		e.Str(r.From)
		e.Str("to_time")
		e.Int(r.To)
	}
}

// Decode decodes the n parameters in d.
func (r *CreateBackupRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateBackup, n, 1, 2); err != nil {
		return err
	}
	*r = CreateBackupRequest{}
	if err := decodeList(d, "tables of a backup", BackupTablesMax, func() error {
		r.Tables = append(r.Tables, d.Str())
		return nil
	}); err != nil {
		return err
	}
	if err := r.Options.decode(d, n > 1, r); err != nil {
		return err
	}
	if (r.From == "") != (r.To == 0) || r.From != "" && len(r.Tables) != 1 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: from and to_time are given together, with one table", MethodCreateBackup)
	}
	return nil
}

func (r *CreateBackupRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "keep_ms":
		r.Keep = millisOption(d, "keep_ms", BackupKeepMax)
	case "from":
		r.From = textOption(d, "from")
	case "to_time":
		r.To = int64(countOption(d, "to_time"))
	default:
		return false
	}
	return true
}

// BackupInfo describes a backup.
type BackupInfo struct {
	ID    string `json:"id"`
	State string `json:"state"` // BackupMaking and the other states
	// CreatedMS, EndedMS and ExpiresMS are in ms since 1970: when it was asked for; when it was made or failed, 0 before; when it is
	// deleted, 0 if never.
	CreatedMS int64    `json:"created_ms"`
	EndedMS   int64    `json:"ended_ms"`
	ExpiresMS int64    `json:"expires_ms"`
	By        string   `json:"by"`    // the user who asked for it; empty on an open cluster
	Error     string   `json:"error"` // why it failed, or why it is not made yet
	Tables    []string `json:"tables"`
	Tablets   int64    `json:"tablets"`
	Bytes     int64    `json:"bytes"`    // of the files that it keeps; tables may use them too
	Schedule  string   `json:"schedule"` // that has made it; empty: none
}

func (b *BackupInfo) fields() fields {
	return fields{
		{"id", &b.ID}, {"state", &b.State}, {"created_ms", &b.CreatedMS}, {"ended_ms", &b.EndedMS}, {"expires_ms", &b.ExpiresMS}, {"by", &b.By},
		{"error", &b.Error}, {"tables", &texts{&b.Tables, "tables", BackupTablesMax}}, {"tablets", &b.Tablets}, {"bytes", &b.Bytes}, {"schedule", &b.Schedule},
	}
}

// Backups is the result of list_backups: backups in order of their ids, the first after the given one.
type Backups struct{ Backups []BackupInfo }

func (b *Backups) fields() fields {
	return fields{{"backups", &list[BackupInfo]{all: &b.Backups, fields: (*BackupInfo).fields, what: "backups", max: BackupsPageMax}}}
}

// Append encodes the result.
func (b *Backups) Append(e *wire.Encoder) { b.fields().append(e) }

// Decode decodes the result.
func (b *Backups) Decode(d *wire.Decoder) error {
	*b = Backups{}
	return b.fields().decode(d)
}

// Bounds of copies of backups.
const (
	// BackupFilesPageMax is the number of files in one result of backup_files.
	BackupFilesPageMax = 500
	// ImportedKeep is how long an imported backup is kept.
	ImportedKeep = 24 * time.Hour
	// BackupHandleBytesMax bounds the handle of a file of a backup, in bytes.
	BackupHandleBytesMax = 1 << 20
)

// BackupFilesRequest holds the parameters of backup_files:
//
//	[id, from, options?]
type BackupFilesRequest struct {
	Options
	ID   string
	From int64
}

// Append encodes the parameters.
func (r *BackupFilesRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(2 + min(n, 1))
	e.Str(r.ID)
	e.Int(r.From)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *BackupFilesRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodBackupFiles, n, 2, 3); err != nil {
		return err
	}
	*r = BackupFilesRequest{ID: d.Str(), From: d.Int()}
	if r.From < 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: %d is negative", MethodBackupFiles, r.From)
	}
	return r.Options.decode(d, n > 2, nil)
}

// ReadBackupRequest holds the parameters of read_backup:
//
//	[id, handle, offset, length, options?]
type ReadBackupRequest struct {
	Options
	ID     string
	Handle []byte // of a file, as backup_files returned it; aliases the message
	Offset int64
	Length int64 // at most BlobPieceBytesMax
}

// Append encodes the parameters.
func (r *ReadBackupRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(4 + min(n, 1))
	e.Str(r.ID)
	e.Bin(r.Handle)
	e.Int(r.Offset)
	e.Int(r.Length)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *ReadBackupRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodReadBackup, n, 4, 5); err != nil {
		return err
	}
	*r = ReadBackupRequest{ID: d.Str(), Handle: d.Bytes(), Offset: d.Int(), Length: d.Int()}
	if r.Offset < 0 || r.Length < 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: %d bytes at %d", MethodReadBackup, r.Length, r.Offset)
	}
	if err := within("bytes of a handle", len(r.Handle), BackupHandleBytesMax); err != nil {
		return err
	}
	if r.Length > BlobPieceBytesMax {
		return &table.LimitError{What: "bytes in one read of a backup", Limit: BlobPieceBytesMax, Got: r.Length}
	}
	return r.Options.decode(d, n > 4, nil)
}

// BackupFile is a file of a backup: its manifest, or an SSTable.
type BackupFile struct {
	ID     string // of the blob
	Bytes  int64
	Check  string // identifies the content: files with equal ids and checks are equal
	Handle []byte // for read_backup
}

func (f *BackupFile) fields() fields {
	return fields{{"id", &f.ID}, {"bytes", &f.Bytes}, {"check", &f.Check}, {"handle", &f.Handle}}
}

// BackupFiles is the result of backup_files: a page of the files of a backup, the manifest first. Next is the position of the next page, 0
// after the last one. A file that tablets share may be in several pages.
type BackupFiles struct {
	Files []BackupFile
	Next  int64
}

func (b *BackupFiles) fields() fields {
	return fields{{"files", &list[BackupFile]{all: &b.Files, fields: (*BackupFile).fields, what: "files of a backup", max: BackupFilesPageMax}}, {"next", &b.Next}}
}

// Append encodes the result.
func (b *BackupFiles) Append(e *wire.Encoder) { b.fields().append(e) }

// Decode decodes the result.
func (b *BackupFiles) Decode(d *wire.Decoder) error {
	*b = BackupFiles{}
	return b.fields().decode(d)
}

// Bounds of schedules of backups.
const (
	// SchedulesMax is the number of schedules of a cluster.
	SchedulesMax = 100
	// ScheduleEveryMin and ScheduleEveryMax bound the time between the backups of a schedule.
	ScheduleEveryMin = time.Minute
	ScheduleEveryMax = 366 * 24 * time.Hour
	// ScheduleKeptMax is the number of backups that a schedule may keep: its time of keeping, divided by the time between them.
	ScheduleKeptMax = 500
	// ScheduleNameMax bounds the name of a schedule, in bytes.
	ScheduleNameMax = 64
)

// CreateScheduleRequest holds the parameters of create_backup_schedule:
//
//	[name, [table…], every_ms, keep_ms, options?]    options: first_ms
type CreateScheduleRequest struct {
	Options
	Name string
	// Tables are the names of the tables; none: all tables, also those that are created later.
	Tables      []string
	Every, Keep time.Duration
	// First is the time of the first backup; zero: now.
	First time.Time
}

// Append encodes the parameters.
func (r *CreateScheduleRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	if !r.First.IsZero() {
		n++
	}
	e.Array(4 + min(n, 1))
	e.Str(r.Name)
	e.Array(len(r.Tables))
	for _, name := range r.Tables {
		e.Str(name)
	}
	e.Int(wholeMillis(r.Every))
	e.Int(wholeMillis(r.Keep))
	r.Options.append(e, n)
	if !r.First.IsZero() {
		e.Str("first_ms")
		e.Int(r.First.UnixMilli())
	}
}

// Decode decodes the n parameters in d, and checks the bounds of the schedule.
func (r *CreateScheduleRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateBackupSchedule, n, 4, 5); err != nil {
		return err
	}
	*r = CreateScheduleRequest{Name: d.Str()}
	if err := decodeList(d, "tables of a backup", BackupTablesMax, func() error {
		r.Tables = append(r.Tables, d.Str())
		return nil
	}); err != nil {
		return err
	}
	every, keep := d.Int(), d.Int()
	if err := r.Options.decode(d, n > 4, r); err != nil {
		return err
	}
	if every < ScheduleEveryMin.Milliseconds() || every > ScheduleEveryMax.Milliseconds() {
		return rpc.Errorf(rpc.CodeBadRequest, "a backup every %d ms: want %v to %v", every, ScheduleEveryMin, ScheduleEveryMax)
	}
	if keep < 1 || keep > BackupKeepMax.Milliseconds() {
		return rpc.Errorf(rpc.CodeBadRequest, "backups are kept for %d ms: want 1 ms to %v", keep, BackupKeepMax)
	}
	if kept := keep / every; kept > ScheduleKeptMax {
		return &table.LimitError{What: "backups that a schedule keeps", Limit: ScheduleKeptMax, Got: kept}
	}
	r.Every, r.Keep = time.Duration(every)*time.Millisecond, time.Duration(keep)*time.Millisecond
	return CheckScheduleName(r.Name)
}

func (r *CreateScheduleRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "first_ms" {
		return false
	}
	if ms := countOption(d, "first_ms"); ms > 0 {
		r.First = time.UnixMilli(ms)
	}
	return true
}

// CheckScheduleName returns an error unless a schedule may have that name: letters, digits, and . _ - except at its beginning.
func CheckScheduleName(name string) error {
	bad := name == "" || len(name) > ScheduleNameMax || name[0] == '.' || name[0] == '-' || name[0] == '_'
	for i := 0; i < len(name) && !bad; i++ {
		c := name[i]
		bad = (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}
	if bad {
		return rpc.Errorf(rpc.CodeBadRequest, "the name %.80q of a schedule is not 1 to %d letters, digits and . _ -, the first of them a letter or digit", name, ScheduleNameMax)
	}
	return nil
}

// ScheduleInfo describes a schedule of backups.
type ScheduleInfo struct {
	Name   string   `json:"name"`
	All    bool     `json:"all"`    // tables of the cluster
	Tables []string `json:"tables"` // by their present names; none if all
	// EveryMS and KeepMS are in ms; the other times in ms since 1970, 0 if there is none: when the schedule was made, when the next backup is due, when the
	// last one was, and when the newest backup that is made was requested.
	EveryMS   int64 `json:"every_ms"`
	KeepMS    int64 `json:"keep_ms"`
	CreatedMS int64 `json:"created_ms"`
	NextMS    int64 `json:"next_ms"`
	LastMS    int64 `json:"last_ms"`
	GoodMS    int64 `json:"good_ms"`
	// LastBackup is the id of the last backup, and State its state, BackupMaking and the others; empty if it was deleted, or there is none.
	LastBackup string `json:"last_backup"`
	State      string `json:"state"`
	Failures   int64  `json:"failures"` // backups that have failed since the last one that is made
	Error      string `json:"error"`    // of the last backup, or why it was not begun
	By         string `json:"by"`       // the user who made the schedule; empty on an open cluster
}

// Failing reports whether the last backup has failed, or could not be begun, or leaves tables out.
func (s *ScheduleInfo) Failing() bool { return s.Failures > 0 || s.Error != "" }

func (s *ScheduleInfo) fields() fields {
	return fields{
		{"name", &s.Name}, {"all", &s.All}, {"tables", &texts{&s.Tables, "tables", BackupTablesMax}}, {"every_ms", &s.EveryMS}, {"keep_ms", &s.KeepMS},
		{"created_ms", &s.CreatedMS}, {"next_ms", &s.NextMS}, {"last_ms", &s.LastMS}, {"good_ms", &s.GoodMS}, {"last_backup", &s.LastBackup},
		{"state", &s.State}, {"failures", &s.Failures}, {"error", &s.Error}, {"by", &s.By},
	}
}

// Schedules is the result of list_backup_schedules, in order of their names.
type Schedules struct{ Schedules []ScheduleInfo }

func (s *Schedules) fields() fields {
	return fields{{"schedules", &list[ScheduleInfo]{all: &s.Schedules, fields: (*ScheduleInfo).fields, what: "schedules", max: SchedulesMax}}}
}

// Append encodes the result.
func (s *Schedules) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *Schedules) Decode(d *wire.Decoder) error {
	*s = Schedules{}
	return s.fields().decode(d)
}
