package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Types of the results of administrative calls.
type (
	// ServerInfo is the version and identity of a node.
	ServerInfo = api.Pong
	// Status holds the counters and gauges of a node.
	Status = api.Status
	// DiskStatus is one data directory of a node.
	DiskStatus = api.DiskStatus
	// TableInfo is a table's schema and its tablets.
	TableInfo = api.TableInfo
	// TabletInfo is one tablet of a table.
	TabletInfo = api.TabletInfo
	// GroupInfo holds the stored sizes of one locality group of a tablet.
	GroupInfo = api.GroupInfo
	// RowSample is a row key and the number of bytes before it.
	RowSample = api.RowSample
	// NodeInfo is a node of the cluster.
	NodeInfo = api.NodeInfo
	// UnservedTablets lists the tablets that no server serves.
	UnservedTablets = api.UnservedTablets
	// UnservedTablet is a tablet that no server serves.
	UnservedTablet = api.UnservedTablet
	// Usage is the space used by tables, TableUsage by one table, and FamilyUsage by one family.
	Usage       = api.Usage
	TableUsage  = api.TableUsage
	FamilyUsage = api.FamilyUsage
	// RaftStatus is the state of the lock service.
	RaftStatus = api.RaftStatus
	// RaftServer is a member of the lock service's Raft group.
	RaftServer = api.RaftServer
)

// Ping returns the version and identity of a node. Errors: those of a node that cannot be reached;
// ctx's.
func (c *Client) Ping(ctx context.Context) (ServerInfo, error) {
	var p api.Pong
	err := c.query(ctx, api.MethodPing, nil, p.Decode)
	return p, err
}

// Status returns the counters and gauges of a node. A node that is starting answers with Ready
// false. Errors: those of a node that cannot be reached; ctx's.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s := &api.Status{}
	return s, c.query(ctx, api.MethodStatus, nil, s.Decode)
}

// Tables returns the schemas of all tables, sorted by name. Errors: those of a node that cannot be
// reached or does not serve; ctx's.
func (c *Client) Tables(ctx context.Context) (schemas []*table.Schema, err error) {
	err = c.query(ctx, api.MethodListTables, nil, func(d *wire.Decoder) (err error) {
		schemas, err = api.DecodeSchemas(d)
		return err
	})
	return schemas, err
}

// Describe returns a table's schema and its tablets. Errors: ErrNoTable, and those of Tables.
func (c *Client) Describe(ctx context.Context, name string) (*TableInfo, error) {
	t := &api.TableInfo{}
	if err := c.query(ctx, api.MethodDescribeTable, []string{name}, t.Decode); err != nil {
		return nil, err
	}
	return t, nil
}

// Usage returns the disk space and memory that a table uses, by family; an empty name selects all
// tables. It requires the right to administer the table or to read the cluster. Errors: ErrNoTable,
// ErrPermission, and those of Tables.
func (c *Client) Usage(ctx context.Context, tableName string) (*Usage, error) {
	u := &api.Usage{}
	return u, c.query(ctx, api.MethodUsage, []string{tableName}, u.Decode)
}

// CreateTable creates a table with these families and the locality groups that they name. See
// table.ParseFamilySpec for families as text. Errors: ErrTableExists, ErrBadName, ErrBadSchema,
// table.ErrBadSpec, *table.LimitError, *AmbiguousError, and those of Tables.
func (c *Client) CreateTable(ctx context.Context, name string, families ...table.FamilySpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: families}
	return c.alter(ctx, api.MethodCreateTable, req.Append)
}

// CreateSplitTable is CreateTable with split points: each initial tablet ends with one of the rows,
// and the last one has no end. The first writes are thus spread over several nodes. The table is
// created with all its tablets or not at all. Errors: those of CreateTable; ErrBadSplit if a row is
// given twice.
func (c *Client) CreateSplitTable(ctx context.Context, name string, splitAt []string, families ...table.FamilySpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: families}
	for _, row := range splitAt {
		req.SplitAt = append(req.SplitAt, []byte(row))
	}
	return c.alter(ctx, api.MethodCreateTable, req.Append)
}

// SetFamily adds a family to a table or alters it. Fields that spec does not set stay unchanged. If
// the locality group changes, the next major compactions move the family. Errors: ErrNoTable, and
// those of CreateTable.
func (c *Client) SetFamily(ctx context.Context, tableName string, spec table.FamilySpec) (*table.Schema, error) {
	req := api.SetFamilyRequest{Table: tableName, Family: spec}
	return c.alter(ctx, api.MethodSetFamily, req.Append)
}

// DropFamily deletes a family of a table and all its cells. Errors: ErrNoTable, ErrNoFamily,
// *AmbiguousError, and those of Tables.
func (c *Client) DropFamily(ctx context.Context, tableName, family string) (*table.Schema, error) {
	req := api.NamesRequest{Names: []string{tableName, family}}
	return c.alter(ctx, api.MethodDropFamily, req.Append)
}

// alter makes a call that changes a schema, and returns the new schema.
func (c *Client) alter(ctx context.Context, method string, encode func(*wire.Encoder)) (s *table.Schema, err error) {
	k := call{method: method, change: true, encode: encode}
	k.decode = func(d *wire.Decoder) (err error) {
		s, err = table.DecodeSchema(d, nil)
		return err
	}
	err = c.do(ctx, &k)
	return s, err
}

// DropTable deletes a table and its contents. Errors: ErrNoTable, *AmbiguousError, and those of
// Tables.
func (c *Client) DropTable(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return c.do(ctx, &call{method: api.MethodDropTable, change: true, encode: req.Append})
}

// Compact runs a minor compaction of the table's tablets. If major is set, it rewrites their
// SSTables, so that no deleted, overwritten or expired cell is left. It returns when the
// compactions have ended, which may take minutes. Errors: ErrNoTable, ErrDiskFull, *CorruptError,
// and those of Tables.
func (c *Client) Compact(ctx context.Context, name string, major bool) error {
	req := api.NamesRequest{Names: []string{name}, Major: major}
	return c.do(ctx, &call{method: api.MethodCompactTable, safe: true, encode: req.Append})
}

// SampleRowKeys returns row keys that divide the table into parts of about the same size, for
// parallel processing. The last key is empty and stands for the end of the table. Errors:
// ErrNoTable, and those of Tables.
func (t *Table) SampleRowKeys(ctx context.Context) (samples []RowSample, err error) {
	req := api.SampleRowKeysRequest{Table: t.name}
	before := int64(0) // bytes before start
	for {
		k := call{method: api.MethodSampleRowKeys, table: t.name, row: req.Start, id: &req.TableID, onlyID: req.TableID, safe: true, encode: req.Append}
		var part []RowSample
		k.decode = func(d *wire.Decoder) (err error) {
			part, err = api.DecodeSamples(d)
			return err
		}
		if err := t.client.do(ctx, &k); err != nil {
			return nil, err
		}
		for _, s := range part {
			samples = append(samples, RowSample{Key: s.Key, Offset: before + s.Offset})
		}
		if len(part) == 0 || len(part[len(part)-1].Key) == 0 || k.sentTo.loc == nil {
			return samples, nil
		}
		last := samples[len(samples)-1]
		req.Start, before = successor(last.Key), last.Offset
	}
}

// query makes a read-only call whose parameters are names.
func (c *Client) query(ctx context.Context, method string, names []string, decode func(*wire.Decoder) error) error {
	req := api.NamesRequest{Names: names}
	return c.do(ctx, &call{method: method, safe: true, encode: req.Append, decode: decode})
}
