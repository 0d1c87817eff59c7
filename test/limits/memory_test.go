package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

const (
	mediumRows, largeRows, hugeRows            = 400, 400, 16
	wideRows, wideCells                        = 8, 150 // of medium cells
	smallCell, mediumCell, largeCell, hugeCell = 1000, 100 << 10, 300 << 10, 8 << 20

	loadTime  = 500 * time.Millisecond
	shortTime = 200 * time.Millisecond
	// togetherTimes is how many times as long loads go on that go on together, of each of which only one in togetherShare must be done.
	togetherTimes, togetherShare = 6, 50
	patience                     = time.Minute // until enough of a load must be done
)

// load is one way to make a node take memory: n goroutines of the test call do with numbers of their own.
type load struct {
	what string
	n    int
	// alone tells that beside others it is nothing new to the node: another load writes as large cells.
	alone bool
	// least is how much must be done, in rows or the like.
	least int64
	// do tells of every row or the like that it has written, read or sent as it should.
	do func(ctx context.Context, i int, done func(n int)) error

	done, refused atomic.Int64
}

func row(kind string, i int) string { return fmt.Sprintf("%s%07d", kind, i) }

func value(n int) []byte {
	r, v := rand.New(rand.NewPCG(uint64(n), 1)), make([]byte, n)
	for i := range v {
		v[i] = byte(r.Uint32())
	}
	return v
}

// loads returns all of them.
func loads(p *process) (writes, others []*load) {
	tab, small, medium, large, huge, zeros := p.c.Table("t"), value(smallCell), value(mediumCell), value(largeCell), value(hugeCell), make([]byte, hugeCell)
	write := func(ctx context.Context, done func(int), ms ...*client.RowMutation) error {
		err := tab.ApplyAll(ctx, ms)
		if err == nil {
			done(len(ms))
		}
		return err
	}
	read := func(ctx context.Context, done func(int), row string, size int) error {
		r, err := tab.Get(ctx, row)
		if err != nil || r == nil {
			return err
		}
		if n := len(r.Cells[0].Value); n != size { // of f, which is the first
			return fmt.Errorf("row %s has %d bytes, want %d", row, n, size)
		}
		done(1)
		return nil
	}
	scan := func(ctx context.Context, done func(int), most int, each time.Duration, opts ...client.ScanOption) error {
		s := tab.Scan(ctx, opts...)
		defer s.Close()
		for n := 0; n < most && s.Next(); n++ {
			done(1)
			pause(ctx, each)
		}
		return s.Err()
	}
	writes = []*load{
		{what: "small writes", n: 256, least: 5000, do: func(ctx context.Context, i int, done func(int)) error {
			return write(ctx, done, client.NewRowMutation(row("small", i)).Set("f:q", small).Set("m:q", small))
		}},
		{what: "batches of writes", n: 16, least: 10000, do: func(ctx context.Context, i int, done func(int)) error {
			var ms []*client.RowMutation
			for k := range 200 {
				ms = append(ms, client.NewRowMutation(row("batch", i*200+k)).Set("f:q", small).Set("two:q", small))
			}
			return write(ctx, done, ms...)
		}},
		{what: "medium writes", n: 64, least: 400, do: func(ctx context.Context, i int, done func(int)) error {
			return write(ctx, done, client.NewRowMutation(row("medium", i%mediumRows)).Set("f:q", medium))
		}},
		{what: "large writes", n: 256, least: 60, do: func(ctx context.Context, i int, done func(int)) error {
			return write(ctx, done, client.NewRowMutation(row("large", i%largeRows)).Set("f:q", large).Set("two:q", large))
		}},
		{what: "writes of wide rows", alone: true, n: 8, least: 300, do: func(ctx context.Context, i int, done func(int)) error {
			m := client.NewRowMutation(row("wide", i/wideCells%wideRows))
			return write(ctx, done, m.Set(fmt.Sprint("f:q", i%wideCells), medium))
		}},
		{what: "writes of zeros", alone: true, n: 64, least: 20, do: func(ctx context.Context, i int, done func(int)) error {
			return write(ctx, done, client.NewRowMutation(row("zeros", i%hugeRows)).Set("f:q", zeros))
		}},
		{what: "huge writes", n: 64, least: 2, do: func(ctx context.Context, i int, done func(int)) error {
			return write(ctx, done, client.NewRowMutation(row("huge", i%hugeRows)).Set("f:q", huge))
		}},
	}
	others = []*load{
		{what: "small reads", n: 256, least: 3000, do: func(ctx context.Context, i int, done func(int)) error {
			return read(ctx, done, row("small", i%10_000), smallCell)
		}},
		{what: "reads of many rows", n: 64, least: 400, do: func(ctx context.Context, i int, done func(int)) error {
			var keys []string
			for k := range 100 {
				keys = append(keys, row("medium", (i*17+k)%mediumRows))
			}
			all, err := tab.GetAll(ctx, keys)
			for _, r := range all {
				if r != nil && len(r.Cells[0].Value) == mediumCell {
					done(1)
				}
			}
			return err
		}},
		{what: "large reads", n: 256, least: 200, do: func(ctx context.Context, i int, done func(int)) error {
			return read(ctx, done, row("large", i%largeRows), largeCell)
		}},
		{what: "huge reads", n: 128, least: 12, do: func(ctx context.Context, i int, done func(int)) error {
			return read(ctx, done, row("huge", i%hugeRows), hugeCell)
		}},
		{what: "reads of zeros", n: 64, least: 12, do: func(ctx context.Context, i int, done func(int)) error {
			return read(ctx, done, row("zeros", i%hugeRows), hugeCell)
		}},
		{what: "reads of wide rows", n: 32, least: 8, do: func(ctx context.Context, i int, done func(int)) error {
			return read(ctx, done, row("wide", i%wideRows), mediumCell)
		}},
		{what: "scans of wide rows", n: 32, least: 8, do: func(ctx context.Context, _ int, done func(int)) error {
			return scan(ctx, done, wideRows, 0, client.Prefix("wide"))
		}},
		{what: "scans of zeros", n: 32, least: 8, do: func(ctx context.Context, _ int, done func(int)) error {
			return scan(ctx, done, hugeRows, 0, client.Prefix("zeros"))
		}},
		{what: "scans", n: 16, least: 500, do: func(ctx context.Context, _ int, done func(int)) error { return scan(ctx, done, 1000, 0) }},
		{what: "slow scans", n: 64, least: 64, do: func(ctx context.Context, _ int, done func(int)) error {
			return scan(ctx, done, 100, 50*time.Millisecond, client.Prefix("large"))
		}},
		{what: "major compactions", n: 3, least: 1, do: func(ctx context.Context, _ int, done func(int)) error {
			err := p.c.Compact(ctx, "t", true)
			if err == nil {
				done(1)
			}
			return err
		}},
		{what: "unfinished messages", n: 400, least: 200, do: p.unfinished},
		{what: "messages that lie", n: 8, least: 1000, do: p.lies},
		{what: "deaf readers", n: 128, least: 4, do: p.deaf},
	}
	return writes, others
}

// under puts the node under some loads for a while, and until enough is done of each, and then looks at its memory.
func (p *process) under(while time.Duration, loads ...*load) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	var wait sync.WaitGroup
	p.peak()
	for _, l := range loads {
		l.done.Store(0)
		l.refused.Store(0)
		for g := range l.n {
			wait.Go(func() { p.repeat(ctx, l, g) })
		}
	}
	began := time.Now()
	for idle := loads; time.Since(began) < patience && (time.Since(began) < while || len(idle) > 0); {
		time.Sleep(20 * time.Millisecond)
		for len(idle) > 0 && idle[0].done.Load() >= idle[0].least {
			idle = idle[1:]
		}
	}
	cancel()
	wait.Wait()
	peak := p.peak()
	for _, l := range loads {
		p.t.Logf("%-20s %7d done, %d refused, %4d MiB at most, in %v", l.what, l.done.Load(), l.refused.Load(), peak>>20, time.Since(began).Round(time.Millisecond))
		if n := l.done.Load(); n < l.least {
			p.t.Errorf("of %s only %d were done in %v, want %d", l.what, n, time.Since(began), l.least)
		}
		if peak > memory {
			p.t.Errorf("I13: %s took the process to %d MiB, of %d", l.what, peak>>20, memory>>20)
		}
	}
	if _, err := p.c.Status(p.t.Context()); err != nil {
		p.t.Fatalf("after %s the node does not answer: %v", loads[len(loads)-1].what, err)
	}
}

// repeat makes calls of a load until ctx ends: those with the numbers g, g+l.n, g+2*l.n.
func (p *process) repeat(ctx context.Context, l *load, g int) {
	for i := g; ctx.Err() == nil; i += l.n {
		err := l.do(ctx, i, func(n int) { l.done.Add(int64(n)) })
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, client.ErrOverloaded):
			l.refused.Add(1)
		default:
			p.t.Errorf("%s, %d: %v", l.what, i, err)
			return
		}
	}
}

// TestMemoryUnderLoad (I13): each load alone leaves the process below its memory, 500 ms each, and so do all that write together, on
// a fresh node, for 3 s; STELE_SOAK is how many times that.
func TestMemoryUnderLoad(t *testing.T) {
	while := loadTime
	if n, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && n > 0 {
		while *= time.Duration(n)
	}
	if testing.Short() {
		while = shortTime
	}
	program := build(t)
	t.Run("alone", func(t *testing.T) {
		p := startWithTable(t, program)
		writes, others := loads(p)
		for _, l := range append(writes, others...) {
			p.under(while, l)
		}
	})
	t.Run("writes together", func(t *testing.T) {
		p := startWithTable(t, program)
		writes, _ := loads(p)
		writes = slices.DeleteFunc(writes, func(l *load) bool { return l.alone })
		for _, l := range writes {
			l.least = max(1, l.least/togetherShare)
		}
		p.under(togetherTimes*while, writes...)
	})
}

// startWithTable starts a node with a table of a plain family, one that is kept in memory and one with two-pass compression.
func startWithTable(t *testing.T, program string) *process {
	p := start(t, program)
	var specs []table.FamilySpec
	for _, text := range []string{"f:versions=1", "m:versions=1,group=m,in-memory", "two:versions=1,group=two,compression=two-pass"} {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	if _, err := p.c.CreateTable(t.Context(), "t", specs...); err != nil {
		t.Fatal(err)
	}
	return p
}
