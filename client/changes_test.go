package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// at returns a position.
func at(start, end string, next uint64) changePosition {
	return changePosition{ChangePosition: ChangePosition{Start: []byte(start), End: []byte(end), Next: next}}
}

// TestTokens (CS1): a token within a result continues behind its change, also between changes with the same sequence number, which the tablets of
// a merge have for different rows; tokens of parts join to one of all.
func TestTokens(t *testing.T) {
	c := &Changes{id: 7, positions: []changePosition{at("", "m", 31), at("m", "", 50)}, last: 0, before: 10,
		returned: []Change{{Row: []byte("b"), Seq: 12}, {Row: []byte("c"), Seq: 12}, {Row: []byte("a"), Seq: 30}}}
	want := map[int][]changePosition{
		0: {at("", "m", 10), at("m", "", 50)},
		1: {at("", "b", 13), at("b", "m", 12), at("m", "", 50)},
		2: {at("", "m", 13), at("m", "", 50)},
		3: {at("", "m", 31), at("m", "", 50)},
	}
	for n, positions := range want {
		got := &Changes{}
		if err := got.resume(c.TokenAfter(n)); err != nil || got.id != 7 || !same(got.positions, positions) {
			t.Errorf("after %d changes: %+v, %v", n, got.positions, err)
		}
	}
	clears := &Changes{id: 7, positions: c.positions, before: 10, returned: []Change{{Cleared: &table.RowRange{Start: []byte("a"), End: []byte("b\x00")}, Seq: 12}, {Row: []byte("c"), Seq: 12}}}
	split := &Changes{}
	if err := split.resume(clears.TokenAfter(1)); err != nil || !same(split.positions, []changePosition{at("", "b", 13), at("b", "m", 12), at("m", "", 50)}) {
		t.Errorf("after a clear: %+v, %v", split.positions, err)
	}
	parts := c.Tokens()
	whole, err := JoinChangeTokens(parts[1], parts[0])
	got := &Changes{}
	if err = errors.Join(err, got.resume(whole)); err != nil || !same(got.positions, []changePosition{at("", "m", 31), at("m", "", 50)}) {
		t.Errorf("joined: %+v, %v", got.positions, err)
	}
	low := &Changes{id: 7, positions: []changePosition{at("a", "m", 31)}}
	for _, bad := range []Changes{{since: -1, positions: low.positions}, {positions: []changePosition{at("a", "m", 1<<63)}}, {positions: []changePosition{at("m", "a", 5)}},
		{positions: []changePosition{at("a", "m", 5), at("l", "z", 5)}}} {
		if err := got.resume(bad.Token()); !errors.Is(err, ErrBadToken) {
			t.Errorf("%+v: %v", bad.positions, err)
		}
	}
	other := &Changes{id: 8, positions: c.positions}
	for _, tokens := range [][]string{nil, {""}, {parts[0], other.Token()}, {parts[0][1:]},
		{(&Changes{id: 7, since: 5, positions: []changePosition{at("", "m", 0)}}).Token(), parts[1]}} {
		if _, err := JoinChangeTokens(tokens...); !errors.Is(err, ErrBadToken) {
			t.Errorf("%q: %v", tokens, err)
		}
	}
}

// TestJoinOverlappingTokens (CS1): a reader of several tokens reads each row of them once, from the earliest of its positions on, whatever
// the order of the tokens.
func TestJoinOverlappingTokens(t *testing.T) {
	for _, x := range []struct {
		name  string
		since int64
		of    []changePosition // a token each
		want  []changePosition
	}{
		{"partly", 0, []changePosition{at("a", "m", 31), at("l", "z", 50)}, []changePosition{at("a", "m", 31), at("m", "z", 50)}},
		{"a later one within another", 0, []changePosition{at("", "", 100), at("c", "d", 200)}, []changePosition{at("", "", 100)}},
		{"an earlier one within another", 0, []changePosition{at("", "", 200), at("c", "d", 100)},
			[]changePosition{at("", "c", 200), at("c", "d", 100), at("d", "", 200)}},
		{"a chain", 0, []changePosition{at("a", "d", 30), at("b", "f", 20), at("c", "e", 10), at("g", "h", 5)},
			[]changePosition{at("a", "b", 30), at("b", "c", 20), at("c", "e", 10), at("e", "f", 20), at("g", "h", 5)}},
		{"equal", 0, []changePosition{at("a", "b", 7), at("a", "b", 7)}, []changePosition{at("a", "b", 7)}},
		{"one that has not begun", 0, []changePosition{at("", "", 0), at("c", "", 9)}, []changePosition{at("", "c", 0), at("c", "", 9)}},
		{"one that begins at a time", 5, []changePosition{at("", "", 0), at("c", "", 9)}, []changePosition{at("", "", 0)}},
	} {
		var tokens []string
		for i := range x.of {
			tokens = append(tokens, (&Changes{id: 7, since: x.since, positions: x.of[i : i+1]}).Token())
		}
		for range 2 {
			var got Changes
			joined, err := JoinChangeTokens(tokens...)
			if err = errors.Join(err, got.resume(joined)); err != nil || !same(got.positions, x.want) {
				t.Errorf("%s: %+v, %v; want %+v", x.name, got.positions, err, x.want)
			}
			slices.Reverse(tokens)
		}
	}
}

// TestJoinRandomTokens (CS1): TestJoinOverlappingTokens with random ranges, against each row's positions.
func TestJoinRandomTokens(t *testing.T) {
	random := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 2000 {
		var positions []changePosition
		for range 1 + random.IntN(6) {
			start, end := random.IntN(9), 1+random.IntN(9)
			if start >= end {
				start, end = end-1, start+1
			}
			p := at(fmt.Sprint(start), fmt.Sprint(end), 1+random.Uint64N(5))
			if start == 0 {
				p.Start = nil
			}
			if end == 9 {
				p.End = nil
			}
			positions = append(positions, p)
		}
		nextOf := func(row string, all []changePosition) (next uint64) {
			for _, p := range all {
				if string(p.Start) < row && (len(p.End) == 0 || row <= string(p.End)) && (next == 0 || p.Next < next) {
					next = p.Next
				}
			}
			return next
		}
		got := disjoint(slices.Clone(positions), 0)
		if c := (Changes{positions: got}); !c.ordered() {
			t.Fatalf("%+v became %+v", positions, got)
		}
		for row := range 10 {
			if row := fmt.Sprint(row, "x"); nextOf(row, got) != nextOf(row, positions) {
				t.Fatalf("%+v became %+v: row %s", positions, got, row)
			}
		}
	}
}

// changeServer has a table of two tablets, divided at "m". Row z of the upper one has a change at one time, with the sequence number 11.
type changeServer struct {
	away atomic.Pointer[error] // what the upper tablet answers instead
	time atomic.Int64          // of the change; 0: it is not made yet
}

func (x *changeServer) read(c *rpc.Call) {
	var r api.ReadChangesRequest
	if err := r.Decode(&c.Params, c.NumParams, nil); err != nil {
		c.Fail(err)
		return
	}
	if string(r.Start) < "m" {
		c.Reply(func(e *wire.Encoder) { (&api.ChangesResult{End: []byte("m"), Next: 5}).Append(e, 0, nil) })
		return
	}
	if err := x.away.Load(); err != nil {
		c.Fail(api.ToRPC(*err))
		return
	}
	at := x.time.Load()
	made, next := 0, uint64(11)
	if at > 0 {
		if next++; r.Next > 0 && r.Next < next || r.Next == 0 && r.Since > 0 && r.Since <= at {
			made = 1
		}
	}
	c.Reply(func(e *wire.Encoder) {
		(&api.ChangesResult{Next: next}).Append(e, made, func(_ int, c *api.Change) {
			*c = api.Change{Row: []byte("z"), Seq: 11, Time: at, Mutations: []table.Mutation{table.DeleteRow()}}
		})
	})
}

// changes returns a reader from the time of its first Next on.
func (x *changeServer) changes(t *testing.T) *Changes {
	t.Helper()
	srv, err := rpc.NewServer(rpc.ServerConfig{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	srv.Handle(api.MethodRoot, rpc.Pooled, func(c *rpc.Call) { c.Reply((&api.RootInfo{}).Append) })
	srv.Handle(api.MethodReadChanges, rpc.Pooled, x.read)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	client, err := Open(t.Context(), l.Addr().String(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c, err := client.Table("t").Changes(ChangesFrom{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFirstNextFails (CS1): a reader begins at the time of its first Next, also with the rows of a tablet that does not answer then, unless there is no
// stream yet.
func TestFirstNextFails(t *testing.T) {
	for _, x := range []struct {
		name         string
		err          error
		before, want bool // whether the change was made before the first Next, and is returned
	}{
		{"away", api.ErrCorrupt, false, true},
		{"an earlier change", api.ErrCorrupt, true, false},
		{"no stream", api.ErrNoChangeStream, false, false},
		{"no failure", nil, true, false},
	} {
		srv := &changeServer{}
		c := srv.changes(t)
		if x.err != nil {
			srv.away.Store(&x.err)
		}
		if x.before {
			srv.time.Store(time.Now().Add(-time.Second).UnixMicro())
		}
		if _, err := c.Next(t.Context()); (err == nil) != (x.err == nil) {
			t.Fatalf("%s: %v", x.name, err)
		}
		if !x.before {
			srv.time.Store(time.Now().UnixMicro())
		}
		srv.away.Store(nil)
		if other := c.Token(); x.want { // another reader goes on in its place
			if err := c.resume(other); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Next(t.Context())
		if err != nil || (len(got) > 0) != x.want {
			t.Errorf("%s: then %+v, %v", x.name, got, err)
		}
	}
}

// same compares positions, for which no key and an empty one are the same.
func same(a, b []changePosition) bool {
	text := func(all []changePosition) (out [][3]any) {
		for _, p := range all {
			out = append(out, [3]any{string(p.Start), string(p.End), p.Next})
		}
		return out
	}
	return reflect.DeepEqual(text(a), text(b))
}
