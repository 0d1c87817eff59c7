package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a node that keeps its tables in maps. It can be restarted on the same address with the
// same data. A hook injects faults.
type fake struct {
	t    testing.TB
	addr string
	srv  *rpc.Server

	// hook is called before and after the execution of each request. If it returns an error, that
	// is the answer.
	hook atomic.Pointer[func(when moment, method string) error]
	// onRoot is called for each root request, for which the hook is not.
	onRoot atomic.Pointer[func() error]

	mu       sync.Mutex
	requests map[string]int // received requests by method
	executed map[string]int // executed requests by method
	deadline time.Time      // of the last one
	silent   bool           // do not return where a scan continues
	schemas  map[string]*table.Schema
	rows     map[string]map[string][]table.Cell
	cursors  map[uint64]*fakeScan
	cursor   uint64
	clock    int64
	nodes    []api.NodeInfo
	conns    []net.Conn

	down atomic.Bool // clients cannot dial
	bare bool        // for benchmarks: see handleBare

	// cluster is set if the tablets are on several servers; at is the one that executes a request.
	cluster *fakeCluster
	at      int
}

type moment int

const (
	before moment = iota
	after
)

// fakeScan is an open cursor.
type fakeScan struct {
	req  api.ScanOpenRequest
	next []byte
	end  []byte
	at   int // the server
}

func newFake(t testing.TB) *fake {
	f := &fake{
		t: t, requests: map[string]int{}, executed: map[string]int{}, schemas: map[string]*table.Schema{},
		rows: map[string]map[string][]table.Cell{}, cursors: map[uint64]*fakeScan{}, clock: 1_000_000,
		nodes: []api.NodeInfo{{ID: "n1", Name: "one", State: api.NodeAlive, Self: true}, {ID: "n2", Name: "two", State: api.NodeDead}},
	}
	f.start("127.0.0.1:0")
	t.Cleanup(f.stop)
	f.create("t", "f", "g")
	return f
}

func (f *fake) start(addr string) {
	f.t.Helper()
	f.addr, f.srv = f.serve(addr, 0)
}

// serve starts the server with that number.
func (f *fake) serve(addr string, at int) (string, *rpc.Server) {
	f.t.Helper()
	srv, err := rpc.NewServer(rpc.ServerConfig{Workers: 2})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.bare {
		f.handleBare(srv)
	} else {
		for _, method := range api.Methods() {
			srv.Handle(method, rpc.Pooled, func(c *rpc.Call) { f.handle(c, at) })
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	return l.Addr().String(), srv
}

func (f *fake) stop() { f.srv.Close() }

// restart simulates a crash and a restart: cursors are lost.
func (f *fake) restart() {
	f.stop()
	f.mu.Lock()
	f.cursors = map[uint64]*fakeScan{}
	f.mu.Unlock()
	f.start(f.addr)
}

func (f *fake) create(name string, families ...string) {
	s := table.NewSchema(name, 1)
	for _, family := range families {
		s, _ = s.Apply(table.FamilySpec{Name: family})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schemas[name], f.rows[name] = s, map[string][]table.Cell{}
}

// on sets the hook.
func (f *fake) on(hook func(when moment, method string) error) { f.hook.Store(&hook) }

// open returns a Client of the fake, whose connections cut can break.
func (f *fake) open(cfg Config) *Client {
	f.t.Helper()
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if f.down.Load() {
			return nil, syscall.ECONNREFUSED
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			f.mu.Lock()
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
		}
		return conn, err
	}
	c, err := Open(context.Background(), f.addr, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// cut breaks all connections, from the client's side.
func (f *fake) cut() {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (f *fake) count(m map[string]int, method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m[method]
}

func (f *fake) handle(c *rpc.Call, at int) {
	method := c.Method()
	if method == api.MethodRoot {
		f.root(c, at)
		return
	}
	f.mu.Lock()
	f.requests[method]++
	f.deadline = c.Deadline()
	f.mu.Unlock()
	hook := f.hook.Load()
	if hook != nil {
		if err := (*hook)(before, method); err != nil {
			c.Fail(api.ToRPC(err))
			return
		}
	}
	e := wire.GetEncoder()
	defer e.Release()
	err := f.execute(method, c, e, at)
	if err == nil && hook != nil {
		err = (*hook)(after, method)
	}
	if err != nil {
		c.Fail(api.ToRPC(err))
		return
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

func (f *fake) execute(method string, c *rpc.Call, e *wire.Encoder, at int) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.executed[method]++
	f.at = at
	defer func() { f.traceLocked(method, err) }()
	d, n := &c.Params, c.NumParams
	switch method {
	case api.MethodMutate:
		return f.mutate(d, n, e)
	case api.MethodMutateRows:
		return f.mutateRows(d, n, e)
	case api.MethodRead:
		return f.read(d, n, e)
	case api.MethodReadRows:
		return f.readRows(d, n, e)
	case api.MethodScanOpen:
		return f.scanOpen(d, n, e)
	case api.MethodScanNext:
		return f.scanNext(d, n, e)
	case api.MethodScanClose:
		var r api.ScanNextRequest
		err := r.Decode(d, n)
		delete(f.cursors, r.Cursor)
		e.Nil()
		return err
	case api.MethodCheckAndMutate:
		return f.checkAndMutate(d, n, e)
	case api.MethodReadModifyWrite:
		return f.readModifyWrite(d, n, e)
	case api.MethodSampleRowKeys:
		return f.sampleRowKeys(d, n, e)
	}
	return f.admin(method, d, n, e)
}

func (f *fake) table(name string) (map[string][]table.Cell, error) {
	if rows := f.rows[name]; rows != nil {
		return rows, nil
	}
	return nil, api.ErrNoTable
}

// apply makes the changes of one row.
func (f *fake) apply(name string, rm *table.RowMutation) (timestamp int64, err error) {
	rows, err := f.table(name)
	if err != nil {
		return 0, err
	}
	if err := rm.Validate(f.schemas[name], nil); err != nil {
		return 0, err
	}
	key := string(rm.Row)
	cells := slices.Clone(rows[key])
	for _, m := range rm.Mutations {
		ts := m.Timestamp
		if m.Op == table.OpSet && ts == table.ServerTimestamp {
			if timestamp == 0 {
				f.clock++
				timestamp = f.clock
			}
			ts = timestamp
		}
		cells = slices.DeleteFunc(cells, func(c table.Cell) bool {
			column := c.Family == m.Family && bytes.Equal(c.Qualifier, m.Qualifier)
			switch m.Op {
			case table.OpSet:
				return column && c.Timestamp == ts
			case table.OpDeleteColumn:
				return column && c.Timestamp >= m.Start && m.End.Contains(c.Timestamp)
			case table.OpDeleteFamily:
				return c.Family == m.Family
			}
			return true
		})
		if m.Op == table.OpSet {
			cells = append(cells, table.Cell{Family: m.Family, Qualifier: bytes.Clone(m.Qualifier), Timestamp: ts, Value: bytes.Clone(m.Value)})
		}
	}
	slices.SortFunc(cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	if rows[key] = cells; len(cells) == 0 {
		delete(rows, key)
	}
	return timestamp, nil
}

func (f *fake) mutate(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.MutateRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if err := f.here(r.Table, r.TableID, r.Row.Row); err != nil {
		return err
	}
	ts, err := f.apply(r.Table, &r.Row)
	api.AppendTimestamp(e, ts)
	return err
}

func (f *fake) mutateRows(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.MutateRowsRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	e.Array(len(r.Rows))
	for i := range r.Rows {
		err := f.refusal(r.Rows[i].Row)
		ts := int64(0)
		if err == nil {
			err = f.here(r.Table, r.TableID, r.Rows[i].Row)
		}
		if err == nil {
			ts, err = f.apply(r.Table, &r.Rows[i])
		}
		api.AppendMutateResult(e, ts, err)
	}
	return nil
}

// refusal rejects a row of a batch once, if its key asks for that.
func (f *fake) refusal(row []byte) error {
	unsure := bytes.HasPrefix(row, []byte("unsure-"))
	if !unsure && !bytes.HasPrefix(row, []byte("once-")) || f.executed[string(row)] > 0 {
		return nil
	}
	f.executed[string(row)]++
	if unsure {
		return api.ErrOutcomeUnknown
	}
	return &api.OverloadedError{Reason: "test", RetryAfter: time.Millisecond}
}

func (f *fake) filtered(name string, key []byte, filter []byte) ([]table.Cell, error) {
	rows, err := f.table(name)
	if err != nil || len(filter) == 0 {
		return rows[string(key)], err
	}
	fd := wire.NewDecoder(filter)
	tree, err := table.DecodeFilter(&fd, nil)
	if err != nil {
		return nil, err
	}
	p, err := table.Compile(tree)
	if err != nil {
		return nil, err
	}
	var ev table.Evaluator
	out, err := ev.Eval(p, key, slices.Clone(rows[string(key)]))
	return slices.Clone(out), err
}

func (f *fake) read(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.ReadRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if err := f.here(r.Table, r.TableID, r.Row); err != nil {
		return err
	}
	cells, err := f.filtered(r.Table, r.Row, r.Filter)
	api.AppendRow(e, r.Row, cells)
	return err
}

func (f *fake) readRows(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.ReadRowsRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if len(r.Rows) > 7 {
		return &table.LimitError{What: api.ResultBytes, Limit: 7, Got: int64(len(r.Rows))}
	}
	e.Array(len(r.Rows))
	for _, row := range r.Rows {
		if err := f.here(r.Table, r.TableID, row); err != nil {
			return err
		}
		cells, err := f.filtered(r.Table, row, r.Filter)
		if err != nil {
			return err
		}
		api.AppendRow(e, row, cells)
	}
	return nil
}

func (f *fake) scanOpen(d *wire.Decoder, n int, e *wire.Encoder) error {
	s := &fakeScan{at: f.at}
	if err := s.req.Decode(d, n, nil); err != nil {
		return err
	}
	start, end, _ := s.req.Range()
	s.next, s.end = bytes.Clone(start), bytes.Clone(end)
	s.req.Filter = bytes.Clone(s.req.Filter)
	f.cursor++
	f.cursors[f.cursor] = s
	return f.scanBatch(f.cursor, e)
}

func (f *fake) scanNext(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.ScanNextRequest
	if err := r.Decode(d, n); err != nil {
		return err
	}
	return f.scanBatch(r.Cursor, e)
}

func (f *fake) scanBatch(cursor uint64, e *wire.Encoder) error {
	s := f.cursors[cursor]
	if s == nil || s.at != f.at {
		return api.ErrCursorExpired
	}
	rows, err := f.table(s.req.Table)
	if err != nil {
		return err
	}
	stop, err := f.upTo(s.req.Table, s.req.TableID, s.next)
	if err != nil {
		delete(f.cursors, cursor)
		return err
	}
	keys := make([]string, 0, len(rows))
	for key := range rows {
		if key >= string(s.next) && (len(s.end) == 0 || key < string(s.end)) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	w := api.BeginScan(e)
	for _, key := range keys {
		if stop != nil && key >= string(stop) {
			break
		}
		cells, err := f.filtered(s.req.Table, []byte(key), s.req.Filter)
		if err != nil {
			return err
		}
		if w.Rows() >= s.req.BatchRows || w.Bytes() >= s.req.BatchBytes {
			s.next = []byte(key)
			if w.End(cursor, s.next); f.silent {
				e.Truncate(e.Len() - 2 - len(key)) // nil instead of the key
				e.Nil()
			}
			return nil
		}
		if len(cells) == 0 {
			continue
		}
		w.Row([]byte(key), cells)
		if s.req.Limit > 0 {
			if s.req.Limit--; s.req.Limit == 0 {
				stop = nil
				break
			}
		}
	}
	delete(f.cursors, cursor)
	if stop == nil || len(s.end) > 0 && string(stop) >= string(s.end) {
		w.End(0, nil)
		return nil
	}
	s.next = stop
	if !s.req.Parts {
		f.cursors[cursor] = s
		w.End(cursor, stop)
		return nil
	}
	w.End(0, stop)
	return nil
}

func (f *fake) checkAndMutate(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.CheckAndMutateRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if err := f.here(r.Table, r.TableID, r.Row); err != nil {
		return err
	}
	cells, err := f.filtered(r.Table, r.Row, r.Predicate)
	if err != nil {
		return err
	}
	rm := table.RowMutation{Row: r.Row, Mutations: r.False}
	if len(cells) > 0 {
		rm.Mutations = r.True
	}
	if len(rm.Mutations) > 0 {
		_, err = f.apply(r.Table, &rm)
	}
	e.Bool(len(cells) > 0)
	return err
}

func (f *fake) readModifyWrite(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.ReadModifyWriteRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if err := f.here(r.Table, r.TableID, r.Row); err != nil {
		return err
	}
	rows, err := f.table(r.Table)
	if err != nil {
		return err
	}
	var written []table.Cell
	for _, rule := range r.Rules {
		old := &table.Row{Cells: rows[string(r.Row)]}
		c, _ := Latest(old, rule.Family+":"+string(rule.Qualifier))
		value := append(bytes.Clone(c.Value), rule.Value...)
		if rule.Op == table.RuleIncrement {
			if len(c.Value) != 8 && len(c.Value) != 0 {
				return api.ErrNotNumber
			}
			sum := rule.Amount
			if len(c.Value) == 8 {
				sum += int64(binary.BigEndian.Uint64(c.Value))
			}
			value = binary.BigEndian.AppendUint64(nil, uint64(sum))
		}
		rm := table.RowMutation{Row: r.Row, Mutations: []table.Mutation{table.Set(rule.Family, rule.Qualifier, table.ServerTimestamp, value)}}
		ts, err := f.apply(r.Table, &rm)
		if err != nil {
			return err
		}
		written = append(written, table.Cell{Family: rule.Family, Qualifier: bytes.Clone(rule.Qualifier), Timestamp: ts, Value: value})
	}
	api.AppendRow(e, r.Row, written)
	return nil
}
