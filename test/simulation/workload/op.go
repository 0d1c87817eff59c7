package workload

import "fmt"

// Kind is the kind of an operation.
type Kind string

// Operations on rows.
const (
	Read    Kind = "read"
	Write   Kind = "write" // one mutation of one row, alone or in a batch of rows
	Check   Kind = "check and mutate"
	Modify  Kind = "read-modify-write"
	ScanAll Kind = "scan"
)

// Operations on tables.
const (
	Create    Kind = "create table"
	Drop      Kind = "drop table"   // see Op.Kept
	Undrop    Kind = "undrop table" // TableID is the table's
	Rename    Kind = "rename table" // Table is its name in the plan, and Under the new one
	Clear     Kind = "clear rows"   // those in the range of Scan
	SetFamily Kind = "set family"
	// ReadOutside reads a row through a view that does not have it.
	ReadOutside Kind = "read outside a view"
	AddView     Kind = "add view"
	DropView    Kind = "drop view"
	// ReadStream is one call of a reader of a change stream.
	ReadStream Kind = "read change stream"
	DropFamily Kind = "drop family"
)

// Operations on a follower, of one of its tables each.
const (
	BeginFollow  Kind = "create replication"
	EndFollow    Kind = "remove replication and table"
	ScanFollower Kind = "scan follower"
	ReportFollow Kind = "list replications" // see Op.Lag
	// SourceStream has all changes of a table of the source, from before the first one on.
	SourceStream Kind = "read all changes"
)

// Operations of operators: their outcome is not judged.
const (
	Split   Kind = "split"
	Merge   Kind = "merge"
	Move    Kind = "move"
	Compact Kind = "compact"
	Drain   Kind = "drain"
	Undrain Kind = "undrain"
)

// Operations on the lock service.
const (
	GetFile    Kind = "get file"
	CachedFile Kind = "get cached file"
	SetFile    Kind = "set file"
	DeleteFile Kind = "delete file"
	// HoldLock lasts from the call of Acquire to the end of the hold, see Hold.
	HoldLock  Kind = "hold lock"
	Ephemeral Kind = "ephemeral file"
	WatchFile Kind = "watch file"
)

// Other operations.
const (
	Grant       Kind = "grant"
	Revoke      Kind = "revoke"
	SetQuota    Kind = "set quota"
	RemoveQuota Kind = "remove quota"
	PutBlob     Kind = "put blob"
	GetBlob     Kind = "get blob"
	DeleteBlob  Kind = "delete blob"
	ListBlobs   Kind = "list blobs"
	// CreateBackup lasts until the backup is made, or has failed. ScanRestored reads a table that was restored.
	CreateBackup Kind = "create backup"
	BackupAt     Kind = "create backup as of a time" // as CreateBackup
	// ScheduledBackup lasts from before the backup was requested until it is seen to be made.
	ScheduledBackup Kind = "scheduled backup"
	CreateSchedule  Kind = "create backup schedule"
	DeleteSchedule  Kind = "delete backup schedule"
	RestoreBackup   Kind = "restore backup"
	ScanRestored    Kind = "scan restored table"
	DeleteBackup    Kind = "delete backup"
	ListBackups     Kind = "list backups"
	// Note has a violation that a client has found by itself.
	Note Kind = "note"
)

// Op is an operation. Which fields are set depends on its kind.
type Op struct {
	Number, Client int
	Kind           Kind
	// User is the principal that made the call; empty for an administrator.
	User string
	// Call and Return are times of the History. Return is Infinity if the outcome is unknown.
	Call, Return int64
	Outcome      Outcome
	Reason       Reason
	Error        string
	// Bad is a violation that the client found by itself.
	Bad string
	// Final is set for the reads after the workload.
	Final bool

	Table, Row string
	// Under is the name by which the table was used, if it is not Table.
	Under string
	// TableID is the id of a created table.
	TableID uint64
	// Kept means that a dropped table can be restored.
	Kept bool
	// View is the view through which the table was used, or which was added or dropped.
	View string
	// Families are those of a created or changed table, or of a read that is restricted to them. For a read it may be one column.
	Families []string

	// Changes are those of a Write, those of a Check whose predicate holds, and the rules of a
	// Modify.
	Changes   []Change
	Otherwise []Change // of a Check whose predicate does not hold
	Predicate *Predicate
	Matched   bool
	// Stamp is the server's timestamp of a Write or a Modify, see Cell.Stamps; 0: not known, or there is none.
	Stamp int64
	Cells []Cell // the result of a Read, and of a Modify

	Scan  *Scan
	File  *File
	Hold  *Hold
	Right *Right
	Blob  *Blob
	Node  string

	Backup *Backup
	Stream *Stream
	// Lag is the lag of a table that the follower reports, in ms; -1: none.
	Lag int64
}

// name returns the name by which the table was used.
func (o *Op) name() string {
	if o.Under != "" {
		return o.Under
	}
	return o.Table
}

// String returns the operation in one line.
func (o Op) String() string {
	until := "?"
	if o.Return != Infinity {
		until = seconds(o.Return)
	}
	text := fmt.Sprintf("#%d client %d%s %s to %s %s: %s", o.Number, o.Client, suffix(" user ", o.User), seconds(o.Call), until, o.Kind, o.Outcome)
	text += suffix(" table ", o.Table) + suffix(" under ", o.Under) + suffix(" view ", o.View) + suffix(" row ", o.Row) + list(" families ", o.Families) + list(" changes ", o.Changes) + list(" otherwise ", o.Otherwise)
	if o.Predicate != nil {
		text += fmt.Sprintf(" if %v matched %t", *o.Predicate, o.Matched)
	}
	text += list(" cells ", o.Cells) + suffix(" node ", o.Node)
	text += part(" scan ", o.Scan) + part(" file ", o.File) + part(" hold ", o.Hold) + part(" right ", o.Right) + part(" blob ", o.Blob) + part(" backup ", o.Backup) + part(" stream ", o.Stream)
	if o.Kind == ReportFollow {
		text += fmt.Sprintf(" lag %d ms", o.Lag)
	}
	return text + suffix(" error ", o.Error) + suffix(" violation ", o.Bad)
}

func seconds(at int64) string { return fmt.Sprintf("%.6fs", float64(at)/1e9) }

func suffix(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf("%s%.300s", name, value)
}

func list[T any](name string, all []T) string {
	if len(all) == 0 {
		return ""
	}
	return suffix(name, fmt.Sprintf("%v", all))
}

func part[T any](name string, p *T) string {
	if p == nil {
		return ""
	}
	return suffix(name, fmt.Sprintf("%+v", *p))
}

// ChangeKind is the kind of a change of a row.
type ChangeKind string

// The kinds of changes.
const (
	Set            ChangeKind = "set"
	DeleteColumn   ChangeKind = "delete column"
	DeleteVersions ChangeKind = "delete versions" // of a column, with timestamps in [From, To)
	DeleteCells    ChangeKind = "delete family"
	DeleteRow      ChangeKind = "delete row"
	Increment      ChangeKind = "increment"
	Append         ChangeKind = "append"
	Operand        ChangeKind = "operand" // N is added to the cell of an aggregate family with the timestamp At
)

// Change is a part of a mutation or a rule. Column is a family for DeleteCells.
type Change struct {
	Kind   ChangeKind
	Column string
	// Value is the name of the value that is set, or the bytes that are appended.
	Value string
	N     int64 // of an Increment or an Operand
	// At is the timestamp of an Operand or a Set, see Cell.Stamps; 0 means the server's. From and To are the bounds of DeleteVersions: math.MinInt64 and
	// math.MaxInt64 mean none.
	At, From, To int64
}

// Predicate is the condition of a Check: the newest value of a column has this name or, if the name
// is empty, the column exists.
type Predicate struct{ Column, Value string }

// Cell is a column with its values, newest first.
type Cell struct {
	Column string
	Values []string
	// Stamps are the timestamps of the values, in µs since the start of the history.
	Stamps []int64
}

// Scan is a scan of the rows in [Start, End); an empty End means unbounded.
type Scan struct {
	Start, End string
	Limit      int64 // 0: none
	Rows       []ScanRow
	// Whole is set if the scan reached the end of its range.
	Whole bool
}

// ScanRow is a row that a scan returned.
type ScanRow struct {
	Row   string
	Cells []Cell
}

// File is an operation on a file of the lock service.
type File struct {
	Path string
	// Value is the value to write. Generation is compared, unless it is api.AnyGeneration; Old is
	// the value that was read with it.
	Value      string
	Generation uint64
	Old        string
	// Refused: the generation that was found is FoundGeneration. Zero means no file.
	Refused         bool
	FoundGeneration uint64
	FoundValue      string
}

// Hold is a hold of a lock.
type Hold struct {
	Lock       string
	Shared     bool
	Session    uint64
	Generation uint64
	// From is when Acquire returned, To the last time at which the session believed that it held
	// the lock. Released is when Release returned without an error; Infinity if it did not.
	From, To, Released int64
}

// Backup is an operation on backups.
type Backup struct {
	ID, Source string   // Source is the table
	IDs        []string // of a list
	// At is set if the backup has the table as it was at that time, in µs since the start of the history.
	At int64
}

// Stream is a call of a reader of a change stream.
type Stream struct {
	// After is the number of the call after which this one continues, maybe from its token; -1 if this one is the first of the stream.
	After   int
	Changes []StreamChange
}

// StreamChange is a change of a change stream. Its sets have the timestamps of their cells, those of columns that are appended to or counted the
// whole value.
type StreamChange struct {
	Row     string
	Seq     uint64
	Changes []Change
	// Cleared is set if the change is a deletion of the rows in [Start, End).
	Cleared *Scan
}

// Right is a grant to a user on a table.
type Right struct{ User, Rights string }

// Blob is an operation on blobs.
type Blob struct {
	ID   string
	Name string // of the contents
	// Found is the name of the contents that were read; it starts with "corrupt" if they are no
	// contents that were written.
	Found string
	IDs   []string // of a list
}
