package client

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Types of the results about tables.
type (
	// TableInfo is a table's schema and its tablets.
	TableInfo = api.TableInfo
	// TabletInfo is one tablet of a table.
	TabletInfo = api.TabletInfo
	// GroupInfo holds the stored sizes of one locality group of a tablet.
	GroupInfo = api.GroupInfo
	// Usage is the space used by tables, TableUsage by one table, and FamilyUsage by one family.
	Usage       = api.Usage
	TableUsage  = api.TableUsage
	FamilyUsage = api.FamilyUsage

	// KeyHeat has the operations on the rows of a table by ranges of rows and intervals, and KeyHeatRequest what to ask for.
	KeyHeat        = api.KeyHeat
	KeyHeatRequest = api.KeyHeatRequest
	// HotUser is a user of a hot row.
	HotUser = api.HotUser
	// HotTabletList has the tablets with the most operations, HotTablet is one of them, and HotTabletsRequest what to ask for.
	HotTabletList     = api.HotTabletList
	HotTablet         = api.HotTablet
	HotTabletsRequest = api.HotTabletsRequest
	// DroppedTable is a dropped table that is kept.
	DroppedTable = api.DroppedTable
)

// Tables administers the tables of a cluster: their names, schemas, owners and stored data. For the
// rows of one table see Table, for its tablets Tablets.
type Tables struct{ calls *caller }

// Tables returns the administration of tables.
func (c *Client) Tables() Tables { return Tables{&c.calls} }

// List returns the schemas of all tables, sorted by name. Errors: those of a node that cannot be
// reached or does not serve; ctx's.
func (t Tables) List(ctx context.Context) (schemas []*table.Schema, err error) {
	err = t.calls.query(ctx, api.MethodListTables, nil, func(d *wire.Decoder) (err error) {
		schemas, err = api.DecodeSchemas(d)
		return err
	})
	return schemas, err
}

// Describe returns a table's schema and its tablets. Errors: ErrNoTable, and those of List.
func (t Tables) Describe(ctx context.Context, name string) (*TableInfo, error) {
	info := &api.TableInfo{}
	if err := t.calls.query(ctx, api.MethodDescribeTable, []string{name}, info.Decode); err != nil {
		return nil, err
	}
	return info, nil
}

// KeyHeat returns which rows of a table were read and written, over time. It requires the right to read the whole table: the result has
// row keys. Errors: ErrNoTable, ErrPermission, ErrLimit.
func (t Tables) KeyHeat(ctx context.Context, r *KeyHeatRequest) (*KeyHeat, error) {
	k := &api.KeyHeat{}
	return k, t.calls.do(ctx, &call{method: api.MethodKeyHeat, safe: true, encode: r.Append, decode: k.Decode})
}

// Hot returns the tablets with the most operations on rows in a period, the hottest first, of the tables that the caller may read as a whole.
// METADATA is not among them. Errors: ErrLimit, and those of List.
func (t Tables) Hot(ctx context.Context, r *HotTabletsRequest) (*HotTabletList, error) {
	l := &api.HotTabletList{}
	return l, t.calls.do(ctx, &call{method: api.MethodHotTablets, safe: true, encode: r.Append, decode: l.Decode})
}

// Usage returns the disk space and memory that a table uses, by family; an empty name selects all
// tables. It requires the right to administer the table or to read the cluster. Errors: ErrNoTable,
// ErrPermission, and those of List.
func (t Tables) Usage(ctx context.Context, tableName string) (*Usage, error) {
	u := &api.Usage{}
	return u, t.calls.query(ctx, api.MethodUsage, []string{tableName}, u.Decode)
}

// Create creates a table with these families and the locality groups that they name. See
// table.ParseFamilySpec for families as text. Errors: ErrTableExists, ErrBadName, ErrBadSchema,
// table.ErrBadSpec, *table.LimitError, *AmbiguousError, and those of List.
func (t Tables) Create(ctx context.Context, name string, families ...table.FamilySpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: families}
	return t.alter(ctx, api.MethodCreateTable, req.Append)
}

// CreateSplit is Create with split points: each initial tablet ends with one of the rows, and the
// last one has no end. The first writes are thus spread over several nodes. The table is created
// with all its tablets or not at all. Errors: those of Create; ErrBadSplit if a row is given twice.
func (t Tables) CreateSplit(ctx context.Context, name string, splitAt []string, families ...table.FamilySpec) (*table.Schema, error) {
	return t.CreateFrom(ctx, name, &TableSpec{Families: families, SplitAt: splitAt})
}

// TableSpec describes a table to be created.
type TableSpec struct {
	Families []table.FamilySpec
	// SplitAt has the split points, as for CreateSplit.
	SplitAt []string
	// Granularity is that of the table's timestamps. Masters of earlier versions reject any but that of microseconds.
	Granularity table.Granularity
	// Protected means that the table cannot be dropped. Masters of earlier versions reject it.
	Protected bool
	// ChangeRetention is how long the table's changes are kept for readers of its change stream; zero means that it has none.
	ChangeRetention time.Duration
}

// CreateFrom creates a table that a spec describes. Errors: those of CreateSplit.
func (t Tables) CreateFrom(ctx context.Context, name string, spec *TableSpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: spec.Families, Granularity: spec.Granularity, Protected: spec.Protected, ChangeRetention: spec.ChangeRetention}
	for _, row := range spec.SplitAt {
		req.SplitAt = append(req.SplitAt, []byte(row))
	}
	return t.alter(ctx, api.MethodCreateTable, req.Append)
}

// SetFamily adds a family to a table or alters it. Fields that spec does not set stay unchanged. If
// the locality group changes, the next major compactions move the family. Errors: ErrNoTable, and
// those of Create.
func (t Tables) SetFamily(ctx context.Context, tableName string, spec table.FamilySpec) (*table.Schema, error) {
	req := api.SetFamilyRequest{Table: tableName, Family: spec}
	return t.alter(ctx, api.MethodSetFamily, req.Append)
}

// DropFamily deletes a family of a table and all its cells. Errors: ErrNoTable, ErrNoFamily,
// ErrProtected, *AmbiguousError, and those of List.
func (t Tables) DropFamily(ctx context.Context, tableName, family string) (*table.Schema, error) {
	req := api.NamesRequest{Names: []string{tableName, family}}
	return t.alter(ctx, api.MethodDropFamily, req.Append)
}

// Alter makes a list of changes of a table's schema, one after the other, all at once or none of them. Errors: ErrNoFamily,
// ErrProtected, table.ErrFamilyExists, table.ErrNoView, table.ErrViewExists, table.ErrViewChanged, and those of SetFamily; those about a change are in a *table.ElementError.
func (t Tables) Alter(ctx context.Context, tableName string, changes ...table.Change) (*table.Schema, error) {
	req := api.AlterTableRequest{Table: tableName, Changes: changes}
	return t.alter(ctx, api.MethodAlterTable, req.Append)
}

// alter makes a call that changes a schema, and returns the new schema.
func (t Tables) alter(ctx context.Context, method string, encode func(*wire.Encoder)) (s *table.Schema, err error) {
	k := call{method: method, change: true, encode: encode}
	k.decode = func(d *wire.Decoder) (err error) {
		s, err = table.DecodeSchema(d, nil)
		return err
	}
	err = t.calls.do(ctx, &k)
	return s, err
}

// Rename gives a table another name. The table keeps everything that it has: rows, grants, owner, quota, change stream and backups. It has one of
// the names at each moment; when Rename returns, the old name is free, and requests by it fail with ErrNoTable. It requires the right to create
// tables. Errors: ErrNoTable, ErrTableExists, ErrBadName, ErrSystemTable, ErrPermission, *AmbiguousError, and those of List.
func (t Tables) Rename(ctx context.Context, name, to string) (*table.Schema, error) {
	req := api.NamesRequest{Names: []string{name, to}}
	return t.alter(ctx, api.MethodRenameTable, req.Append)
}

// Drop drops a table. No request finds it any more, and its name is free, but it is kept for a week: see Undrop. Its space is
// freed after that, or by Purge. A table whose first tablets were not all created yet is not kept. Errors: ErrNoTable, ErrProtected, *AmbiguousError, and those of
// List.
func (t Tables) Drop(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return t.calls.do(ctx, &call{method: api.MethodDropTable, change: true, encode: req.Append})
}

// DropNow is Drop for good: the table and its contents are deleted, and their space is freed.
func (t Tables) DropNow(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}, Now: true}
	return t.calls.do(ctx, &call{method: api.MethodDropTable, change: true, encode: req.Append})
}

// Dropped lists the dropped tables that are kept, by name and id. It requires the right to read the cluster. Errors: ErrPermission, and those
// of List.
func (t Tables) Dropped(ctx context.Context) ([]DroppedTable, error) {
	var all api.DroppedTables
	err := t.calls.query(ctx, api.MethodListDropped, nil, all.Decode)
	return all.Tables, err
}

// DroppedRef selects a dropped table by the name that it had and, if several had it, by its id.
type DroppedRef struct {
	Name string
	ID   uint64
}

// Undrop makes a dropped table an ordinary one again, with all its rows and grants, under the name as or, if that is empty, the one that it
// had. It requires the right to create tables. Errors: ErrNoTable, ErrTableExists if the name is taken, ErrPermission, *AmbiguousError, and those of List.
func (t Tables) Undrop(ctx context.Context, ref DroppedRef, as string) (*table.Schema, error) {
	req := api.DroppedRequest{Table: ref.Name, ID: ref.ID, As: as}
	return t.alter(ctx, api.MethodUndropTable, func(e *wire.Encoder) { req.AppendAs(api.MethodUndropTable, e) })
}

// Purge deletes a dropped table for good, before its time. It requires the right to create tables. Errors: ErrNoTable, ErrPermission,
// *AmbiguousError, and those of List.
func (t Tables) Purge(ctx context.Context, ref DroppedRef) error {
	req := api.DroppedRequest{Table: ref.Name, ID: ref.ID}
	encode := func(e *wire.Encoder) { req.AppendAs(api.MethodPurgeTable, e) }
	return t.calls.do(ctx, &call{method: api.MethodPurgeTable, change: true, encode: encode})
}

// ClearRows deletes the rows start <= row < end of a table, an empty bound meaning none, in a time that depends on the number of
// tablets and not on that of rows. Rows that are written after it has returned are kept. Each tablet is cleared at a moment of its own, and after an
// error some may be cleared: the call may be repeated. The space of rows that share files with others is freed by the next
// major compactions. Errors: ErrNoTable, ErrSystemTable, ErrOverloaded at too many cleared ranges, and those of List.
func (t Tables) ClearRows(ctx context.Context, name, start, end string) error {
	req := api.ClearRowsRequest{Table: name, Start: []byte(start), End: []byte(end)}
	return t.calls.do(ctx, &call{method: api.MethodClearRows, change: true, safe: true, encode: req.Append})
}

// ClearPrefix is ClearRows for the rows whose keys begin with prefix.
func (t Tables) ClearPrefix(ctx context.Context, name, prefix string) error {
	return t.ClearRows(ctx, name, prefix, string(api.PrefixEnd([]byte(prefix))))
}

// Compact runs a minor compaction of the table's tablets. If major is set, it rewrites their
// SSTables, so that no deleted, overwritten or expired cell is left. It returns when the
// compactions have ended, which may take minutes. Errors: ErrNoTable, ErrDiskFull, *CorruptError,
// and those of List.
func (t Tables) Compact(ctx context.Context, name string, major bool) error {
	req := api.NamesRequest{Names: []string{name}, Major: major}
	return t.calls.do(ctx, &call{method: api.MethodCompactTable, safe: true, encode: req.Append})
}

// SetOwner sets the owner of a table: the principal whose byte quota the table counts against. An
// empty name removes the owner. At first this is the principal that created the table. Ownership
// grants no rights; Usage shows it. It requires the right to administer the cluster. Errors:
// ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of List.
func (t Tables) SetOwner(ctx context.Context, tableName, user string) error {
	req := api.NamesRequest{Names: []string{tableName, user}}
	return t.calls.do(ctx, &call{method: api.MethodSetOwner, change: true, safe: true, encode: req.Append})
}
