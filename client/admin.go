package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Types of the results of administration.
type (
	// ServerInfo is what a node says of itself.
	ServerInfo = api.Pong
	// Status is figures of a node.
	Status = api.Status
	// DiskStatus is one data folder of a node.
	DiskStatus = api.DiskStatus
	// TableInfo is a table's schema and its tablets.
	TableInfo = api.TableInfo
	// TabletInfo is one tablet of a table.
	TabletInfo = api.TabletInfo
	// GroupInfo is what a tablet stores of one locality group.
	GroupInfo = api.GroupInfo
	// RowSample is a row key and how many bytes lie before it.
	RowSample = api.RowSample
	// NodeInfo is a node of the cluster.
	NodeInfo = api.NodeInfo
	// UnservedTablets are the tablets that no server has.
	UnservedTablets = api.UnservedTablets
	// UnservedTablet is one of them.
	UnservedTablet = api.UnservedTablet
	// Usage is what tables take, TableUsage one of them, and FamilyUsage a family's part of that.
	Usage       = api.Usage
	TableUsage  = api.TableUsage
	FamilyUsage = api.FamilyUsage
	// RaftStatus is the state of the lock service.
	RaftStatus = api.RaftStatus
	// RaftServer is a member of the lock service's Raft group.
	RaftServer = api.RaftServer
)

// Ping asks a node who it is. Errors: those of a node that cannot be reached; ctx's.
func (c *Client) Ping(ctx context.Context) (ServerInfo, error) {
	var p api.Pong
	err := c.ask(ctx, api.MethodPing, nil, p.Decode)
	return p, err
}

// Status asks a node for its figures. It answers, with Ready false, while it
// starts. Errors: those of a node that cannot be reached; ctx's.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s := &api.Status{}
	return s, c.ask(ctx, api.MethodStatus, nil, s.Decode)
}

// Tables returns the schemas of all tables, sorted by name. Errors: those of a node
// that cannot be reached or does not serve; ctx's.
func (c *Client) Tables(ctx context.Context) (schemas []*table.Schema, err error) {
	err = c.ask(ctx, api.MethodListTables, nil, func(d *wire.Decoder) (err error) {
		schemas, err = api.DecodeSchemas(d)
		return err
	})
	return schemas, err
}

// Describe returns a table's schema and its tablets. Errors: ErrNoTable, and those
// of Tables.
func (c *Client) Describe(ctx context.Context, name string) (*TableInfo, error) {
	t := &api.TableInfo{}
	if err := c.ask(ctx, api.MethodDescribeTable, []string{name}, t.Decode); err != nil {
		return nil, err
	}
	return t, nil
}

// Usage returns what a table takes on disk and in memory, by family, or each table if the name is empty. It takes the
// right to administer the table, or to read the cluster. Errors: ErrNoTable, ErrPermission, and those of Tables.
func (c *Client) Usage(ctx context.Context, tableName string) (*Usage, error) {
	u := &api.Usage{}
	return u, c.ask(ctx, api.MethodUsage, []string{tableName}, u.Decode)
}

// CreateTable makes a table with these families, and the locality groups that they
// name; see table.ParseFamilySpec for families as text. Errors: ErrTableExists,
// ErrBadName, ErrBadSchema, table.ErrBadSpec, *table.LimitError, *AmbiguousError,
// and those of Tables.
func (c *Client) CreateTable(ctx context.Context, name string, families ...table.FamilySpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: families}
	return c.alter(ctx, api.MethodCreateTable, req.Append)
}

// CreateSplitTable is CreateTable of a table that begins with several tablets: each ends with one of the
// rows, the last has no end. The nodes then share the first writes. There is the table with all its tablets, or none.
// Errors: those of CreateTable; ErrBadSplit, if a row is given twice.
func (c *Client) CreateSplitTable(ctx context.Context, name string, splitAt []string, families ...table.FamilySpec) (*table.Schema, error) {
	req := api.CreateTableRequest{Name: name, Families: families}
	for _, row := range splitAt {
		req.SplitAt = append(req.SplitAt, []byte(row))
	}
	return c.alter(ctx, api.MethodCreateTable, req.Append)
}

// SetFamily adds a family to a table, or alters it: what spec does not give stays as
// it is. A family that is given another locality group moves there, with the next major
// compactions. Errors: ErrNoTable, and those of CreateTable.
func (c *Client) SetFamily(ctx context.Context, tableName string, spec table.FamilySpec) (*table.Schema, error) {
	req := api.SetFamilyRequest{Table: tableName, Family: spec}
	return c.alter(ctx, api.MethodSetFamily, req.Append)
}

// DropFamily deletes a family of a table and all its cells. Errors: ErrNoTable,
// ErrNoFamily, *AmbiguousError, and those of Tables.
func (c *Client) DropFamily(ctx context.Context, tableName, family string) (*table.Schema, error) {
	req := api.NamesRequest{Names: []string{tableName, family}}
	return c.alter(ctx, api.MethodDropFamily, req.Append)
}

// alter makes a call that changes a schema and returns the new one.
func (c *Client) alter(ctx context.Context, method string, encode func(*wire.Encoder)) (s *table.Schema, err error) {
	k := call{method: method, change: true, encode: encode}
	k.decode = func(d *wire.Decoder) (err error) {
		s, err = table.DecodeSchema(d, nil)
		return err
	}
	err = c.do(ctx, &k)
	return s, err
}

// DropTable deletes a table and all that is in it. Errors: ErrNoTable,
// *AmbiguousError, and those of Tables.
func (c *Client) DropTable(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return c.do(ctx, &call{method: api.MethodDropTable, change: true, encode: req.Append})
}

// Compact writes out the table's memtables and, if major, rewrites its SSTables so
// that no deleted, replaced or expired cell is left. It returns when that is done,
// which may take minutes. Errors: ErrNoTable, ErrDiskFull, *CorruptError, and those
// of Tables.
func (c *Client) Compact(ctx context.Context, name string, major bool) error {
	req := api.NamesRequest{Names: []string{name}, Major: major}
	return c.do(ctx, &call{method: api.MethodCompactTable, safe: true, encode: req.Append})
}

// SampleRowKeys returns row keys that divide the table into parts of about the same
// size, for work in parallel. The last has an empty key, for the end of the table.
// Errors: ErrNoTable, and those of Tables.
func (t *Table) SampleRowKeys(ctx context.Context) (samples []RowSample, err error) {
	req := api.SampleRowKeysRequest{Table: t.name}
	before := int64(0) // bytes before start
	for {
		k := call{method: api.MethodSampleRowKeys, table: t.name, row: req.Start, id: &req.TableID, only: req.TableID, safe: true, encode: req.Append}
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
		if len(part) == 0 || len(part[len(part)-1].Key) == 0 || k.went.loc == nil {
			return samples, nil
		}
		last := samples[len(samples)-1]
		req.Start, before = successor(last.Key), last.Offset
	}
}

// ask makes a call that only reads and takes nothing but names.
func (c *Client) ask(ctx context.Context, method string, names []string, decode func(*wire.Decoder) error) error {
	req := api.NamesRequest{Names: names}
	return c.do(ctx, &call{method: method, safe: true, encode: req.Append, decode: decode})
}
