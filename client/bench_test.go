package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

const benchInFlight = 64

// benchServer answers reads with one cell of 1000 bytes and accepts writes without storing them.
// The benchmarks thus measure the client and the layers below it.
func benchServer(b *testing.B) *fake {
	f := &fake{t: b, rows: map[string]map[string][]table.Cell{}}
	f.bare = true
	f.start("127.0.0.1:0")
	b.Cleanup(f.stop)
	return f
}

func (f *fake) handleBare(srv *rpc.Server) {
	value := make([]byte, 1000)
	cells := []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1 << 50, Value: value}}
	key := []byte("row0000000000")
	reads := sync.Pool{New: func() any { return new(api.ReadRequest) }}
	writes := sync.Pool{New: func() any { return new(api.MutateRequest) }}
	answer := func(e *wire.Encoder) { api.AppendRow(e, key, cells) }
	srv.Handle(api.MethodRead, rpc.Inline, func(c *rpc.Call) {
		r := reads.Get().(*api.ReadRequest)
		err := r.Decode(&c.Params, c.NumParams, nil)
		reads.Put(r)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(answer)
	})
	timestamp := func(e *wire.Encoder) { api.AppendTimestamp(e, 1<<50) }
	srv.Handle(api.MethodMutate, rpc.Inline, func(c *rpc.Call) {
		r := writes.Get().(*api.MutateRequest)
		err := r.Decode(&c.Params, c.NumParams, nil)
		writes.Put(r)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(timestamp)
	})
	srv.Handle(api.MethodScanOpen, rpc.Inline, func(c *rpc.Call) {
		var r api.ScanOpenRequest
		if err := r.Decode(&c.Params, c.NumParams, nil); err != nil {
			c.Fail(err)
			return
		}
		c.Reply(func(e *wire.Encoder) { bareBatch(e, cells, 1) })
	})
	srv.Handle(api.MethodScanNext, rpc.Inline, func(c *rpc.Call) {
		cursor := c.Params.Uint()
		c.Reply(func(e *wire.Encoder) { bareBatch(e, cells, cursor+1) })
	})
	srv.Handle(api.MethodScanClose, rpc.Inline, func(c *rpc.Call) { c.Reply(nil) })
}

var benchBatch = 1000 // rows

func bareBatch(e *wire.Encoder, cells []table.Cell, cursor uint64) {
	w := api.BeginScan(e)
	for i := range benchBatch {
		w.Row(fmt.Appendf(nil, "row%05d%05d", cursor, i), cells)
	}
	w.End(cursor, []byte("x"))
}

// inFlight runs b.N calls, 64 at a time.
func inFlight(b *testing.B, call func(i int64)) {
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range benchInFlight {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				call(i)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkGet(b *testing.B) {
	for _, conns := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("conns=", conns), func(b *testing.B) {
			f := benchServer(b)
			tb := f.open(Config{Conns: conns}).Table("t")
			ctx := context.Background()
			inFlight(b, func(int64) {
				if row, err := tb.Get(ctx, "row0000000000"); err != nil || row == nil {
					b.Error(err)
				}
			})
		})
	}
}

func BenchmarkApply(b *testing.B) {
	value := make([]byte, 1000)
	for _, conns := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("conns=", conns), func(b *testing.B) {
			f := benchServer(b)
			tb := f.open(Config{Conns: conns}).Table("t")
			ctx := context.Background()
			inFlight(b, func(int64) {
				if err := tb.Apply(ctx, NewRowMutation("row0000000000").Set("f:q", value)); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// BenchmarkRawGet is BenchmarkGet with package rpc only: the lower bound.
func BenchmarkRawGet(b *testing.B) {
	f := benchServer(b)
	conn, err := rpc.Dial(context.Background(), f.addr, rpc.ConnConfig{})
	check(b, err)
	defer conn.Close()
	encode := func(e *wire.Encoder) {
		e.Array(2)
		e.Str("t")
		e.Str("row0000000000")
	}
	decode := func(d *wire.Decoder) error { d.Skip(); return nil }
	inFlight(b, func(int64) {
		if err := conn.Call(context.Background(), api.MethodRead, encode, decode); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkRawApply is BenchmarkApply with package rpc only: the lower bound.
func BenchmarkRawApply(b *testing.B) {
	f := benchServer(b)
	conn, err := rpc.Dial(context.Background(), f.addr, rpc.ConnConfig{})
	check(b, err)
	defer conn.Close()
	ms := []table.Mutation{table.Set("f", []byte("q"), table.ServerTimestamp, make([]byte, 1000))}
	encode := func(e *wire.Encoder) {
		e.Array(3)
		e.Str("t")
		e.Str("row0000000000")
		table.AppendMutations(e, ms)
	}
	decode := func(d *wire.Decoder) error { d.Int(); return nil }
	inFlight(b, func(int64) {
		if err := conn.Call(context.Background(), api.MethodMutate, encode, decode); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	for _, rows := range []int{100, 250, 500, 900, 1000} {
		b.Run(fmt.Sprint("batch=", rows), func(b *testing.B) {
			benchBatch = rows
			f := benchServer(b)
			s := f.open(Config{}).Table("t").Scan(context.Background())
			defer s.Close()
			b.ReportAllocs()
			for range b.N {
				if !s.Next() {
					b.Fatal(s.Err())
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
