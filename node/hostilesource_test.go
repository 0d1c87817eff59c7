package node_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// fakeSource is a node of another administrator's open cluster, with one table of three rows, of which one changes all the time. Handlers replace its answers.
type fakeSource struct {
	t        testing.TB
	addr     string
	name     string // of the table
	handlers atomic.Pointer[map[string]func(c *rpc.Call)]
	next     atomic.Uint64 // position
}

func newFakeSource(t testing.TB, name string) *fakeSource {
	t.Helper()
	s := &fakeSource{t: t, name: name}
	s.next.Store(10)
	srv := good(rpc.NewServer(rpc.ServerConfig{Workers: 2}))
	for _, method := range api.Methods() {
		srv.Handle(method, rpc.Spawned, func(c *rpc.Call) {
			if all := s.handlers.Load(); all != nil && (*all)[method] != nil {
				(*all)[method](c)
				return
			}
			s.answer(method, c)
		})
	}
	l := good(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Close)
	s.addr = l.Addr().String()
	return s
}

// schema returns that of the table.
func (s *fakeSource) schema() *table.Schema {
	x := good(table.NewSchema(s.name, 7).Apply(good(table.ParseFamilySpec("f"))))
	x = good(x.Apply(good(table.ParseFamilySpec("sum:aggregate=sum"))))
	return good(x.Alter(table.Change{Op: table.ChangeStream, Retention: time.Hour}))
}

// answer answers as a node would.
func (s *fakeSource) answer(method string, c *rpc.Call) {
	switch method {
	case api.MethodRoot:
		c.Reply((&api.RootInfo{}).Append)
	case api.MethodDescribeTable:
		c.Reply((&api.TableInfo{Schema: s.schema()}).Append)
	case api.MethodReadChanges:
		var r api.ReadChangesRequest
		if err := r.Decode(&c.Params, c.NumParams, nil); err != nil {
			c.Fail(err)
			return
		}
		if r.Wait > 0 {
			time.Sleep(5 * time.Millisecond)
		}
		res := &api.ChangesResult{End: r.End, Next: max(s.next.Load(), r.Next), Watermark: time.Now().UnixMicro(), Families: 2}
		if n := s.next.Load(); r.Wait > 0 && len(r.End) == 0 && r.Next <= n {
			s.next.Add(1)
			res.Next = n + 1
			res.Changes = []api.Change{{Row: []byte("live"), Seq: n, Time: 1, Mutations: []table.Mutation{table.Set("f", []byte("q"), int64(n), []byte("v"))}, FamilyIDs: []uint32{1}}}
		}
		c.Reply(pageOf(res))
	case api.MethodScanOpen:
		c.Reply(func(e *wire.Encoder) {
			w := api.BeginScan(e)
			for _, key := range []string{"r1", "r2", "r3"} {
				w.Row([]byte(key), fakeCells())
			}
			w.End(0, nil)
		})
	case api.MethodRead:
		at := api.RowPosition{Next: s.next.Load(), Families: 2}
		c.Reply(func(e *wire.Encoder) { at.Append(e, e.Nil) })
	default:
		c.Fail(rpc.CodeUnknownMethod)
	}
}

func fakeCells() []table.Cell {
	return []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1, Value: []byte("copied")}}
}

func pageOf(r *api.ChangesResult) func(*wire.Encoder) {
	return func(e *wire.Encoder) { r.Append(e, len(r.Changes), func(i int, c *api.Change) { *c = r.Changes[i] }) }
}

// page answers each read_changes for positions above 0 with what change makes of an ordinary result. Those for the first position have the position 10.
func page(change func(q *api.ReadChangesRequest, r *api.ChangesResult)) map[string]func(c *rpc.Call) {
	return map[string]func(c *rpc.Call){api.MethodReadChanges: func(c *rpc.Call) {
		var q api.ReadChangesRequest
		if err := q.Decode(&c.Params, c.NumParams, nil); err != nil {
			c.Fail(err)
			return
		}
		r := &api.ChangesResult{End: q.End, Next: max(q.Next, 10), Watermark: 1, Families: 2}
		if q.Next > 0 {
			change(&q, r)
		}
		c.Reply(pageOf(r))
	}}
}

// changing answers with one change of row r2, which change changes.
func changing(change func(x *api.Change)) map[string]func(c *rpc.Call) {
	return page(func(q *api.ReadChangesRequest, r *api.ChangesResult) {
		x := api.Change{Row: []byte("r2"), Seq: q.Next, Time: 1, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, []byte("changed"))}, FamilyIDs: []uint32{1}}
		change(&x)
		r.Changes, r.Next = []api.Change{x}, q.Next+1
	})
}

// changingOnce answers with a change of row r2 that is not repeated.
func changingOnce() map[string]func(c *rpc.Call) {
	return page(func(q *api.ReadChangesRequest, r *api.ChangesResult) {
		if q.Next <= 10 {
			r.Next, r.Changes = 11, []api.Change{{Row: []byte("r2"), Seq: 10, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}}
		}
	})
}

func mutating(m table.Mutation, id uint32) map[string]func(c *rpc.Call) {
	return changing(func(x *api.Change) { x.Mutations, x.FamilyIDs = []table.Mutation{m}, []uint32{id} })
}

func both(a, b map[string]func(c *rpc.Call)) map[string]func(c *rpc.Call) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// raw answers a method with bytes.
func raw(method string, b []byte) map[string]func(c *rpc.Call) {
	return map[string]func(c *rpc.Call){method: func(c *rpc.Call) { c.Reply(func(e *wire.Encoder) { e.Raw(b) }) }}
}

func failingWith(method string, err error) map[string]func(c *rpc.Call) {
	return map[string]func(c *rpc.Call){method: func(c *rpc.Call) { c.Fail(err) }}
}

// scanning answers scans with rows.
func scanning(rows func(w *api.ScanWriter)) map[string]func(c *rpc.Call) {
	return map[string]func(c *rpc.Call){api.MethodScanOpen: func(c *rpc.Call) {
		c.Reply(func(e *wire.Encoder) {
			w := api.BeginScan(e)
			rows(&w)
			w.End(0, nil)
		})
	}}
}

func describing(s *fakeSource, change func(x *api.TableInfo)) map[string]func(c *rpc.Call) {
	return map[string]func(c *rpc.Call){api.MethodDescribeTable: func(c *rpc.Call) {
		x := &api.TableInfo{Schema: s.schema()}
		change(x)
		c.Reply(x.Append)
	}}
}

// repeated returns an encoded array of n values.
func repeated(n int, value ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xdd}, uint32(n)), bytes.Repeat(value, n)...)
}

// encoded returns what write encodes.
func encoded(write func(e *wire.Encoder)) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	write(e)
	return bytes.Clone(e.Bytes())
}

// hostileAnswer is what a source answers once a replication of it exists, and what the state of the table shows then.
type hostileAnswer struct {
	name     string
	handlers map[string]func(c *rpc.Call)
	// follows means that rows are copied before the answers begin.
	follows bool
	want    string // empty: the table follows it
}

// hostileAnswers are the cases of TestHostileSource.
func hostileAnswers(s *fakeSource) []hostileAnswer {
	divided := atomic.Uint64{}
	long := strings.Repeat("k", 60<<10)
	bomb := encoded(func(e *wire.Encoder) { // 8 changes of 90,000 mutations
		e.Array(5)
		e.Bin(nil)
		e.Uint(100)
		e.Int(1)
		e.Array(8)
		for i := range 8 {
			e.Array(5)
			e.Bin([]byte("r2"))
			e.Uint(uint64(50 + i))
			e.Int(1)
			e.Raw(repeated(90_000, encoded(func(e *wire.Encoder) { e.Array(1); e.Str("del_row") })...))
			e.Array(0)
		}
		e.Uint(2)
	})
	largeFirst := atomic.Int64{}
	return []hostileAnswer{
		{"a text instead of changes", raw(api.MethodReadChanges, []byte{0xa1, 'x'}), false, "answer is invalid"},
		{"an enormous count of changes", raw(api.MethodReadChanges, []byte{0x95, 0xc4, 0, 10, 1, 0xdd, 0xff, 0xff, 0xff, 0xff}), false, "answer is invalid"},
		{"a million changes without mutations", raw(api.MethodReadChanges, encoded(func(e *wire.Encoder) {
			e.Array(5)
			e.Bin(nil)
			e.Uint(100)
			e.Int(1)
			e.Raw(repeated(1_000_000, 0x94, 0xc4, 1, 'r', 50, 1, 0x90))
			e.Uint(2)
		})), false, "answer is invalid"},
		{"a token of 100 MB", raw(api.MethodReadChanges, encoded(func(e *wire.Encoder) {
			e.Array(5)
			e.Bin(make([]byte, 100<<20))
			e.Uint(100)
			e.Int(1)
			e.Array(0)
			e.Uint(2)
		})), false, "message too large"},
		{"tablets without end", map[string]func(c *rpc.Call){api.MethodReadChanges: func(c *rpc.Call) {
			c.Reply(pageOf(&api.ChangesResult{End: fmt.Appendf(nil, "%s%09d", long, divided.Add(1)), Next: 10, Watermark: 1}))
		}}, true, "the table has more than"},
		{"a tablet before the last one", map[string]func(c *rpc.Call){api.MethodReadChanges: func(c *rpc.Call) {
			c.Reply(pageOf(&api.ChangesResult{End: fmt.Appendf(nil, "%09d", 1<<29-divided.Add(1)), Next: 10, Watermark: 1}))
		}}, false, "it ends at row"},
		{"position 0", page(func(_ *api.ReadChangesRequest, r *api.ChangesResult) { r.Next = 0 }), true, "position 0"},
		{"the last position", page(func(_ *api.ReadChangesRequest, r *api.ChangesResult) { r.Next = math.MaxUint64 }), true, "position 18446744073709551615"},
		{"an earlier position", page(func(q *api.ReadChangesRequest, r *api.ChangesResult) { r.Next = q.Next - 1 }), true, "position"},
		{"a negative time", page(func(_ *api.ReadChangesRequest, r *api.ChangesResult) { r.Watermark = math.MinInt64 }), true, "the time -9223372036854775808"},
		{"the last time", page(func(_ *api.ReadChangesRequest, r *api.ChangesResult) { r.Watermark = math.MaxInt64 }), true, ""},
		{"a change with a negative time", changing(func(x *api.Change) { x.Time = -1 }), true, "time -1"},
		{"a change before the position", changing(func(x *api.Change) { x.Seq-- }), true, "a change at position"},
		{"a change after the page", changing(func(x *api.Change) { x.Seq = math.MaxUint64 }), true, "a change at position"},
		{"a change without a row", changing(func(x *api.Change) { x.Row = nil }), true, `a change of row ""`},
		{"a change of a row that is too long", changing(func(x *api.Change) { x.Row = make([]byte, 65<<10) }), true, "row key bytes"},
		{"a change of a row that was not requested", page(func(q *api.ReadChangesRequest, r *api.ChangesResult) {
			r.End, r.Next = []byte("m"), q.Next+1
			r.Changes = []api.Change{{Row: []byte("z"), Seq: q.Next, Mutations: []table.Mutation{table.DeleteRow()}}}
		}), true, `a change of row "z"`},
		{"more changes than were requested", raw(api.MethodReadChanges, bomb), true, "for at most"},
		{"mutations of much memory", map[string]func(c *rpc.Call){api.MethodReadChanges: func(c *rpc.Call) {
			if largeFirst.Add(1)%2 == 1 {
				c.Fail(api.ToRPC(&api.RowTooLargeError{Limit: 1}))
				return
			}
			c.Reply(func(e *wire.Encoder) { e.Raw(bomb) })
		}}, true, "of memory"},
		{"only changes that are too large", failingWith(api.MethodReadChanges, api.ToRPC(&api.RowTooLargeError{Limit: 1})), true, "read a large change"},
		{"an unknown family", mutating(table.Set("zz", nil, 1, nil), 99), true, ""},
		{"the family of positions", mutating(table.Set(table.PositionFamily, []byte("seq"), 1, make([]byte, 8)), 0), true, "is reserved"},
		{"a family with a bad name", mutating(table.Set("a/../b", nil, 1, nil), 1), true, "family name"},
		{"the first timestamp", mutating(table.Set("f", nil, math.MinInt64, nil), 1), true, "timestamp is negative"},
		{"the last timestamp", mutating(table.Set("f", nil, math.MaxInt64, nil), 1), true, ""},
		{"the timestamp of this cluster's clock", mutating(table.Set("f", nil, table.ServerTimestamp, nil), 1), true, "timestamp is negative"},
		{"a range of negative timestamps", mutating(table.DeleteColumnRange("f", nil, math.MinInt64, table.Before(math.MinInt64+1)), 1), true, "negative"},
		{"a qualifier that is too long", mutating(table.Set("f", make([]byte, 17<<10), 1, nil), 1), true, "qualifier bytes"},
		{"an operand for a family of values", mutating(table.Add("f", nil, 1, 1), 1), true, "aggregate"},
		{"an operand of three bytes", mutating(table.Merge("sum", nil, 1, []byte("abc")), 2), true, "operand"},
		{"an unknown operation", raw(api.MethodReadChanges, encoded(func(e *wire.Encoder) {
			e.Array(5)
			e.Bin(nil)
			e.Uint(100)
			e.Int(1)
			e.Raw([]byte{0x91, 0x95, 0xc4, 1, 'r', 50, 1, 0x91, 0x92, 0xa1, 'x', 0xa1, 'f', 0x91, 1})
			e.Uint(2)
		})), true, "answer is invalid"},
		{"positions out of range for ever", failingWith(api.MethodReadChanges, api.ToRPC(&api.OutOfRangeError{Oldest: math.MaxInt64})), true, "read"},
		{"an error of an unknown code", failingWith(api.MethodReadChanges, &rpc.Error{Code: 31999, Message: strings.Repeat("e", 10_000)}), true, "eeee"},

		{"rows out of order", scanning(func(w *api.ScanWriter) {
			w.Row([]byte("r2"), fakeCells())
			w.Row([]byte("r1"), fakeCells())
		}), false, `row "r1"`},
		{"a row twice", scanning(func(w *api.ScanWriter) {
			w.Row([]byte("r2"), fakeCells())
			w.Row([]byte("r2"), fakeCells())
		}), false, `row "r2"`},
		{"a row without a key", scanning(func(w *api.ScanWriter) { w.Row(nil, fakeCells()) }), false, `row ""`},
		{"a row with a key that is too long", scanning(func(w *api.ScanWriter) { w.Row(make([]byte, 65<<10), fakeCells()) }), false, "row key bytes"},
		{"a cell with the first timestamp", scanning(func(w *api.ScanWriter) {
			w.Row([]byte("r"), []table.Cell{{Family: "f", Timestamp: math.MinInt64}})
		}), false, "timestamp is negative"},
		{"a cell of the family of positions", scanning(func(w *api.ScanWriter) {
			w.Row([]byte("r"), []table.Cell{{Family: table.PositionFamily, Qualifier: []byte("seq"), Value: make([]byte, 8)}})
		}), false, "is reserved"},
		{"a cell of an unknown family", scanning(func(w *api.ScanWriter) { w.Row([]byte("r"), []table.Cell{{Family: "zz"}}) }), false, "changed while it was read"},
		{"a row of three million cells", raw(api.MethodScanOpen, encoded(func(e *wire.Encoder) {
			e.Map(1)
			e.Str("rows")
			e.Array(1)
			e.Array(2)
			e.Bin([]byte("r"))
			e.Raw(repeated(3_000_000, 0x94, 0xa0, 0xa0, 0, 0xa0))
		})), false, "over the requested limit"},
		{"an enormous count of rows", raw(api.MethodScanOpen, []byte{0x81, 0xa4, 'r', 'o', 'w', 's', 0xdd, 0xff, 0xff, 0xff, 0xff}), false, "answer is invalid"},
		{"batches without rows", map[string]func(c *rpc.Call){
			api.MethodScanOpen: func(c *rpc.Call) { c.Reply(emptyBatch) }, api.MethodScanNext: func(c *rpc.Call) { c.Reply(emptyBatch) },
		}, false, "batches without rows"},
		{"a row that changes all the time", changing(func(*api.Change) {}), false, "do not end"},
		{"a read without a position", both(changingOnce(), raw(api.MethodRead, []byte{0xc0})), false, "answer is invalid"},
		{"a read at position 0", both(changingOnce(), map[string]func(c *rpc.Call){api.MethodRead: func(c *rpc.Call) {
			c.Reply(func(e *wire.Encoder) { (&api.RowPosition{Families: 2}).Append(e, e.Nil) })
		}}), false, "answer is invalid"},
		{"a read of a tablet above the row", both(changingOnce(), map[string]func(c *rpc.Call){api.MethodRead: func(c *rpc.Call) {
			c.Reply(func(e *wire.Encoder) { (&api.RowPosition{Next: 10, Families: 2, Start: []byte("r2")}).Append(e, e.Nil) })
		}}), false, "of rows after"},
		{"only rows that are too large", map[string]func(c *rpc.Call){
			api.MethodScanOpen: func(c *rpc.Call) {
				var r api.ScanOpenRequest
				if r.Decode(&c.Params, c.NumParams, nil) == nil && len(r.Filter) == 0 {
					c.Fail(api.ToRPC(&api.RowTooLargeError{Limit: 1}))
					return
				}
				s.answer(api.MethodScanOpen, c)
			},
			api.MethodRead: func(c *rpc.Call) { c.Fail(api.ToRPC(&api.RowTooLargeError{Limit: 1})) },
		}, false, "row"},
		{"another row", map[string]func(c *rpc.Call){
			api.MethodScanOpen: func(c *rpc.Call) { c.Fail(api.ToRPC(&api.RowTooLargeError{Limit: 1})) },
		}, false, "row"},

		{"the schema of METADATA", describing(s, func(x *api.TableInfo) { x.Schema.Name = metadata.Name }), false, "the schema of table"},
		{"a schema without an id", describing(s, func(x *api.TableInfo) { x.Schema.ID = 0 }), false, "without the id"},
		{"the table of another id", both(page(func(_ *api.ReadChangesRequest, r *api.ChangesResult) { r.Families = 3 }), describing(s, func(x *api.TableInfo) { x.Schema.ID = 8 })), true, "dropped and created again"},
		{"the family of positions in the schema", describing(s, func(x *api.TableInfo) {
			x.Schema = good(x.Schema.AddFamily(table.Family{Name: table.PositionFamily}))
		}), false, "is reserved"},
		{"the last ids of families", describing(s, func(x *api.TableInfo) {
			x.Schema.NextFamilyID, x.Schema.Family("f").ID = math.MaxUint32, math.MaxUint32-1
		}), false, ""},
		{"no schema", raw(api.MethodDescribeTable, []byte{0x80}), false, "no schema"},
		{"ten million tablets", raw(api.MethodDescribeTable, encoded(func(e *wire.Encoder) {
			e.Map(1)
			e.Str("tablets")
			e.Raw(repeated(10_000_000, 0x80))
		})), false, "elements in"},

		{"METADATA at an address of 1 MB", map[string]func(c *rpc.Call){api.MethodRoot: func(c *rpc.Call) {
			c.Reply((&api.RootInfo{Metadata: true, Table: 7, Server: "n1.1", Addr: strings.Repeat("a", 1<<20) + ":1"}).Append)
		}}, false, "the source"},
		{"METADATA of noise", map[string]func(c *rpc.Call){
			api.MethodRoot: func(c *rpc.Call) {
				c.Reply((&api.RootInfo{Metadata: true, Table: math.MaxUint64, Server: "n1.1", Addr: s.addr}).Append)
			},
			api.MethodScanOpen: func(c *rpc.Call) {
				c.Reply(func(e *wire.Encoder) {
					w := api.BeginScan(e)
					for range 64 {
						w.Row(noise(rand.New(rand.NewPCG(divided.Add(1), 0)), make([]byte, 20)), []table.Cell{{Family: "location", Qualifier: []byte("server"), Value: []byte("x")}})
					}
					w.End(0, []byte("z"))
				})
			},
		}, false, "the source"},
	}
}

func emptyBatch(e *wire.Encoder) {
	w := api.BeginScan(e)
	w.End(1, nil)
}

// hostileSources is the cluster of TestHostileSource.
type hostileSources struct {
	*backupCluster
	steady *fakeSource
	most   atomic.Uint64 // bytes of the heap
}

// TestHostileSource (RE5, RE6): whatever a source answers, the table's state names what is wrong, or the table follows. The node does not run out of memory, other replications go on, and
// other tables are as they were.
func TestHostileSource(t *testing.T) {
	h := &hostileSources{backupCluster: newBackupCluster(t, 1), steady: newFakeSource(t, "steady")}
	h.create("witness")
	h.fill("witness", 1)
	if err := h.c.Replications().Create(h.ctx, &client.ReplicationSpec{Name: "steady", Addrs: []string{h.steady.addr}, Tables: []string{"steady"}}); err != nil {
		t.Fatal(err)
	}
	want := h.rows("witness")
	h.refused()
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { h.watchMemory(done) })
	defer watch.Wait()
	defer close(done)
	s := newFakeSource(t, "hostile")
	for _, x := range hostileAnswers(s) {
		t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) { h.play(t, s, &x) })
	}
	if got := h.rows("witness"); len(got) != len(want) {
		t.Errorf("another table has %d rows, had %d", len(got), len(want))
	}
}

// refused creates replications of tables that no source may have.
func (h *hostileSources) refused() {
	h.t.Helper()
	s := newFakeSource(h.t, "hostile")
	for _, name := range []string{metadata.Name, "../users", "witness", "steady"} {
		s.name = name
		err := h.c.Replications().Create(h.ctx, &client.ReplicationSpec{Name: "bad", Addrs: []string{s.addr}, Tables: []string{name}})
		if err == nil || errors.Is(err, client.ErrAmbiguous) {
			h.t.Errorf("a replication of table %s: %v", name, err)
		}
	}
	s.name = "other"
	all := describing(s, func(x *api.TableInfo) {})
	s.handlers.Store(&all)
	err := h.c.Replications().Create(h.ctx, &client.ReplicationSpec{Name: "bad", Addrs: []string{s.addr}, Tables: []string{"mine"}})
	if !errors.Is(err, rpc.CodeBadRequest) || !strings.Contains(err.Error(), `"other"`) {
		h.t.Errorf("the schema of another table: %v", err)
	}
	if tables := good(h.c.Tables().List(h.ctx)); len(tables) != 2 {
		h.t.Errorf("%d tables", len(tables))
	}
}

// play has the source give the answers, and checks what the node makes of them.
func (h *hostileSources) play(t *testing.T, s *fakeSource, x *hostileAnswer) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.handlers.Store(nil)
	s.next.Store(10)
	runtime.GC()
	h.most.Store(0)
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := h.c.Replications().Create(ctx, &client.ReplicationSpec{Name: "hostile", Addrs: []string{s.addr}, Tables: []string{"hostile"}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(h.c.Replications().Remove(ctx, "hostile"), h.c.Tables().Drop(ctx, "hostile")); err != nil {
			t.Error(err)
		}
	}()
	if !x.follows {
		if err := h.c.Replications().Pause(ctx, "hostile"); err != nil {
			t.Fatal(err)
		}
	} else {
		h.await(t, "hostile", func(x *api.ReplicationTable) bool { return x.State == api.ReplicationFollowing && x.Changes > 0 })
	}
	s.handlers.Store(&x.handlers)
	if !x.follows {
		if err := h.c.Replications().Resume(ctx, "hostile"); err != nil {
			t.Fatal(err)
		}
	}
	steady := h.state("steady").Changes
	shown := h.await(t, "hostile", func(now *api.ReplicationTable) bool {
		if x.want == "" {
			return now.State == api.ReplicationFollowing
		}
		return now.State == api.ReplicationFailed && strings.Contains(now.Error, x.want)
	})
	t.Log(shown.Error)
	if x.want != "" && !strings.Contains(shown.Error, "the source") && !strings.Contains(shown.Error, "row ") {
		t.Errorf("the error does not name the source, or a row: %s", shown.Error)
	}
	h.await(t, "steady", func(now *api.ReplicationTable) bool {
		return now.State == api.ReplicationFollowing && now.Changes > steady+5
	})
	if most := h.most.Load(); most > before.HeapAlloc+600<<20 {
		t.Errorf("%d MiB of memory, %d before", most>>20, before.HeapAlloc>>20)
	}
}

func (h *hostileSources) state(name string) (x api.ReplicationTable) {
	for _, r := range good(h.c.Replications().List(h.ctx)) {
		if r.Name == name {
			x = r.Tables[0]
		}
	}
	return x
}

func (h *hostileSources) await(t *testing.T, name string, ok func(x *api.ReplicationTable) bool) api.ReplicationTable {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		x := h.state(name)
		if ok(&x) {
			return x
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", x)
		}
	}
}

func (h *hostileSources) watchMemory(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > h.most.Load() {
			h.most.Store(m.HeapAlloc)
		}
	}
}

// TestHostileSourceNoise: a source that answers with random values does not end the node.
func TestHostileSourceNoise(t *testing.T) {
	t.Parallel()
	h := &hostileSources{backupCluster: newBackupCluster(t, 1)}
	s := newFakeSource(t, "hostile")
	if err := h.c.Replications().Create(h.ctx, &client.ReplicationSpec{Name: "hostile", Addrs: []string{s.addr}, Tables: []string{"hostile"}}); err != nil {
		t.Fatal(err)
	}
	seed := testseed.New(t)
	var calls atomic.Uint64
	all := map[string]func(c *rpc.Call){}
	for _, method := range api.Methods() {
		all[method] = func(c *rpc.Call) {
			r := rand.New(rand.NewPCG(seed, calls.Add(1)))
			if r.IntN(3) > 0 {
				s.answer(method, c)
				return
			}
			c.Reply(func(e *wire.Encoder) { hostileValue(e, r, 4) })
		}
	}
	s.handlers.Store(&all)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, change := range []func(context.Context, string) error{h.c.Replications().Pause, h.c.Replications().Resume} { // without its backoff
			if err := change(h.ctx, "hostile"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := calls.Load(); n < 50 {
		t.Errorf("the source was called %d times", n)
	}
	h.create("own")
	h.fill("own", 1)
}

// hostileValue encodes a value that may be what a client expects.
func hostileValue(e *wire.Encoder, r *rand.Rand, depth int) {
	keys := []string{"rows", "cursor", "next", "schema", "tablets", "name", "id", "families", "metadata", "addr", "table", "f", "set", "del_row"}
	switch k := r.IntN(9); {
	case k == 0:
		e.Nil()
	case k == 1:
		e.Bool(r.IntN(2) == 0)
	case k == 2:
		e.Int([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 40}[r.IntN(6)])
	case k == 3:
		e.Uint([]uint64{0, 7, math.MaxUint64, 1 << 33}[r.IntN(4)])
	case k == 4:
		e.Str(keys[r.IntN(len(keys))])
	case k == 5 || depth == 0:
		e.Bin(noise(r, make([]byte, r.IntN(20))))
	case k == 6:
		n := r.IntN(5)
		e.Map(n)
		for range n {
			e.Str(keys[r.IntN(len(keys))])
			hostileValue(e, r, depth-1)
		}
	default:
		n := r.IntN(7)
		e.Array(n)
		for range n {
			hostileValue(e, r, depth-1)
		}
	}
}
