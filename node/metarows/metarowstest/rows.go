package metarowstest

import (
	"bytes"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Rows is METADATA in memory. Its methods may be called at any time.
type Rows struct {
	t      testing.TB
	client *client.Client

	mu            sync.Mutex
	cells         map[string][]table.Cell
	clock         int64
	changes       int
	before, after func(method, key string) error
}

// New returns an empty METADATA, which ends with the test.
func New(t testing.TB) *Rows {
	t.Helper()
	r := &Rows{t: t, cells: map[string][]table.Cell{}}
	s := authztest.Serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){
		api.MethodRoot: func(c *rpc.Call) { c.Reply((&api.RootInfo{Table: metadata.TableID}).Append) },
		api.MethodRead: r.handle, api.MethodScanOpen: r.handle, api.MethodCheckAndMutate: r.handle,
	})
	var err error
	r.client, err = client.Open(t.Context(), "127.0.0.1:1", client.Config{
		RetryTimeMax: -1, Dial: func(context.Context, string) (net.Conn, error) { return s.Connect(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

// Table returns the client of the table.
func (r *Rows) Table() *client.Table { return r.client.Table(metadata.Name) }

// Before has each request fail for which f returns an error, before it is executed. Nil ends that. Key is the row's, or the first of a scan.
func (r *Rows) Before(f func(method, key string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

// After is Before for requests that have been executed.
func (r *Rows) After(f func(method, key string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = f
}

// Changes returns the number of conditional changes that were executed, whether their condition held or not.
func (r *Rows) Changes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// Plant replaces the newest value of a column of a row, or adds it, without regard for generations.
func (r *Rows) Plant(key []byte, family, qualifier string, value []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applyLocked(string(key), []table.Mutation{table.Set(family, []byte(qualifier), table.ServerTimestamp, value)})
}

// Drop removes the cells of a column of a row.
func (r *Rows) Drop(key []byte, family, qualifier string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applyLocked(string(key), []table.Mutation{table.DeleteColumn(family, []byte(qualifier))})
}

// Wipe removes a row without a trace, so that it can be created again.
func (r *Rows) Wipe(key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cells, string(key))
}

// Keys returns the keys of the rows that a reader finds, in order.
func (r *Rows) Keys() (keys []string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(r.cells)) {
		cells, err := filtered(key, r.cells[key], metadata.Rows())
		if err != nil {
			r.t.Fatal(err)
		}
		if len(cells) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Row returns the row of an empty tablet with that id, at its first generation.
func Row(id, tableID uint64, start, end string) *metadata.Row {
	m := tablet.Meta{ID: id, Table: tableID, Start: []byte(start), End: []byte(end)}
	r := &metadata.Row{Table: tableID, Generation: metadata.FirstGeneration(id), Meta: tablet.EncodeMeta(&m)}
	if end != "" {
		r.End = []byte(end)
	}
	return r
}

func (r *Rows) handle(c *rpc.Call) {
	e := wire.GetEncoder()
	defer e.Release()
	if err := r.execute(c, e); err != nil {
		c.Fail(api.ToRPC(err))
		return
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

func (r *Rows) execute(c *rpc.Call, e *wire.Encoder) error {
	var key string
	var do func() error
	switch c.Method() {
	case api.MethodRead:
		var q api.ReadRequest
		if err := q.Decode(&c.Params, c.NumParams, nil); err != nil {
			return err
		}
		key, do = string(q.Row), func() error { return r.readLocked(&q, e) }
	case api.MethodScanOpen:
		var q api.ScanOpenRequest
		if err := q.Decode(&c.Params, c.NumParams, nil); err != nil {
			return err
		}
		start, _, _ := q.Range()
		key, do = string(start), func() error { return r.scanLocked(&q, e) }
	default:
		var q api.CheckAndMutateRequest
		if err := q.Decode(&c.Params, c.NumParams, nil); err != nil {
			return err
		}
		key, do = string(q.Row), func() error { return r.changeLocked(&q, e) }
	}
	r.mu.Lock()
	before, after := r.before, r.after
	r.mu.Unlock()
	if before != nil { // which may use r
		if err := before(c.Method(), key); err != nil {
			return err
		}
	}
	r.mu.Lock()
	err := do()
	r.mu.Unlock()
	if err == nil && after != nil {
		err = after(c.Method(), key)
	}
	return err
}

func (r *Rows) readLocked(q *api.ReadRequest, e *wire.Encoder) error {
	cells, err := decoded(string(q.Row), r.cells[string(q.Row)], q.Filter)
	api.AppendRow(e, q.Row, cells)
	return err
}

func (r *Rows) scanLocked(q *api.ScanOpenRequest, e *wire.Encoder) error {
	start, end, _ := q.Range()
	w := api.BeginScan(e)
	for _, key := range slices.Sorted(maps.Keys(r.cells)) {
		if key < string(start) || len(end) > 0 && key >= string(end) {
			continue
		}
		cells, err := decoded(key, r.cells[key], q.Filter)
		if err != nil {
			return err
		}
		if len(cells) > 0 && (q.Limit == 0 || w.Rows() < int(q.Limit)) {
			w.Row([]byte(key), cells)
		}
	}
	w.End(0, nil)
	return nil
}

func (r *Rows) changeLocked(q *api.CheckAndMutateRequest, e *wire.Encoder) error {
	key := string(q.Row)
	passed, err := decoded(key, r.cells[key], q.Predicate)
	if err != nil {
		return err
	}
	r.changes++
	mutations := q.False
	if len(passed) > 0 {
		mutations = q.True
	}
	r.applyLocked(key, mutations)
	e.Bool(len(passed) > 0)
	return nil
}

// applyLocked applies mutations to a row. All cells of METADATA have the server's timestamps.
func (r *Rows) applyLocked(key string, mutations []table.Mutation) {
	cells := slices.Clone(r.cells[key])
	r.clock++
	for _, m := range mutations {
		switch m.Op {
		case table.OpSet:
			cells = append(cells, table.Cell{Family: m.Family, Qualifier: bytes.Clone(m.Qualifier), Timestamp: r.clock, Value: bytes.Clone(m.Value)})
		case table.OpDeleteColumn:
			cells = slices.DeleteFunc(cells, func(c table.Cell) bool { return c.Family == m.Family && bytes.Equal(c.Qualifier, m.Qualifier) })
		case table.OpDeleteRow:
			cells = nil
		}
	}
	slices.SortStableFunc(cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	if r.cells[key] = cells; len(cells) == 0 {
		delete(r.cells, key)
	}
}

// decoded returns the cells that an encoded filter passes; all for none.
func decoded(key string, cells []table.Cell, filter []byte) ([]table.Cell, error) {
	if len(filter) == 0 {
		return cells, nil
	}
	d := wire.NewDecoder(filter)
	f, err := table.DecodeFilter(&d, nil)
	if err != nil {
		return nil, err
	}
	return filtered(key, cells, f)
}

func filtered(key string, cells []table.Cell, f table.Filter) ([]table.Cell, error) {
	p, err := table.Compile(f)
	if err != nil {
		return nil, err
	}
	var ev table.Evaluator
	out, err := ev.Eval(p, []byte(key), slices.Clone(cells))
	return slices.Clone(out), err
}
