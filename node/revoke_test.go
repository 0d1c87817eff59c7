package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// wire cutter: dial connects, until the node is cut off from all others.
type cutter struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

var errCut = errors.New("cut off")

func (c *cutter) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.cut {
		nc.Close()
		err = errCut
	}
	if err != nil {
		return nil, err
	}
	c.conns[nc] = true
	return nc, nil
}

func (c *cutter) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for nc := range c.conns {
		nc.Close()
	}
	clear(c.conns)
}

// secureThree is a cluster of three nodes, each with a part of the table t, and a client of its
// administrator.
func secureThree(t *testing.T) (*testCluster, *client.Client, [3]*cutter) {
	f, _, _ := secureTestCluster(t, 3)
	var firstTabletWorkers [3]*cutter
	for i := range f.cfgs {
		firstTabletWorkers[i] = &cutter{conns: map[net.Conn]bool{}}
		f.cfgs[i].DialWith(firstTabletWorkers[i].dial)
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	admin := f.client(0)
	ctx := within(t, 60*time.Second)
	var rows []string
	for i := range 11 {
		rows = append(rows, fmt.Sprintf("r%02d", i))
	}
	if _, err := admin.Tables().CreateSplit(ctx, "t", rows, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, key := range append(beside(row), row) {
			if err := admin.Table("t").Apply(ctx, client.NewRowMutation(key).SetAt("f:q", 1, []byte("f")).SetAt("g:q", 1, []byte("g"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f, admin, firstTabletWorkers
}

// beside returns further rows of the tablet that ends with one, in their order.
func beside(row string) (keys []string) {
	before := []byte(row)
	before[len(before)-1]--
	for _, c := range "abcdefgh" {
		keys = append(keys, string(before)+"~"+string(c))
	}
	return keys
}

// spread sees that each node has a tablet, and returns a row of one of each.
func (f *testCluster) spread(admin *client.Client) (own [3]string) {
	f.t.Helper()
	ctx := within(f.t, 60*time.Second)
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		info, err := admin.Tables().Describe(ctx, "t")
		if err != nil {
			continue // one of the servers is not back yet
		}
		count := map[string]int{}
		own = [3]string{}
		for _, x := range info.Tablets {
			count[x.Node]++
			for i := range f.cfgs {
				if x.Node == f.cfgs[i].Name && len(x.End) > 0 {
					own[i] = string(x.End)
				}
			}
		}
		lacks := slices.Index(own[:], "")
		if lacks < 0 {
			return own
		}
		for _, x := range info.Tablets {
			if count[x.Node] > 1 && len(x.End) > 0 {
				_, err := admin.Tablets().Move(ctx, "t", client.TabletRef{ID: x.ID}, f.cfgs[lacks].Name)
				f.t.Logf("tablet %d moved to %s: %v", x.ID, f.cfgs[lacks].Name, err)
				break
			}
		}
	}
	f.t.Fatalf("tablets are not on all nodes: %v", own)
	return own
}

// leader returns the name of the node that leads the lock service.
func (f *testCluster) leader(c *client.Client) string {
	f.t.Helper()
	s, err := c.Nodes().RaftStatus(within(f.t, 20*time.Second))
	if err != nil {
		f.t.Fatal(err)
	}
	return s.LeaderName
}

// attempt is one request of a principal.
type attempt struct {
	begun time.Time
	what  string
	err   *rpc.Error // nil: it was answered
	node  int
}

// hammered is the requests of a principal to all nodes.
type hammered struct {
	wg sync.WaitGroup
	mu sync.Mutex
	// all is what came of those that have ended. Guarded by mu.
	all []attempt
	// methods is how many there are.
	methods int
}

// hammer sends requests to all nodes until stop. Each node is asked for what it has.
func hammer(conns [3]*rpc.Conn, own [3]string, stop <-chan struct{}) *hammered {
	h := &hammered{}
	for i, conn := range conns {
		row := []byte(own[i])
		rules := []table.Rule{{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: 1}}
		set := []table.Mutation{table.Set("f", []byte("w"), 1, nil)}
		both := [][]byte{[]byte(beside(own[i])[0]), row}
		calls := map[string]func(*wire.Encoder){
			api.MethodRead:            (&api.ReadRequest{Table: "t", Row: row}).Append,
			api.MethodReadRows:        (&api.ReadRowsRequest{Table: "t", Rows: both}).Append,
			api.MethodMutateRows:      (&api.MutateRowsRequest{Table: "t", Rows: []table.RowMutation{{Row: both[0], Mutations: set}, {Row: both[1], Mutations: set}}}).Append,
			api.MethodMutate:          (&api.MutateRequest{Table: "t", Row: table.RowMutation{Row: row, Mutations: set}}).Append,
			api.MethodScanOpen:        (&api.ScanOpenRequest{Table: "t", Start: row, Limit: 1}).Append,
			api.MethodReadModifyWrite: (&api.ReadModifyWriteRequest{Table: "t", Row: row, Rules: rules}).Append,
			api.MethodCheckAndMutate:  (&api.CheckAndMutateRequest{Table: "t", Row: row, True: set}).Append,
			api.MethodDescribeTable:   (&api.NamesRequest{Names: []string{"t"}}).Append,
		}
		h.methods = len(calls) + 1
		for what, params := range calls {
			h.repeat(stop, func() {
				h.one(attempt{begun: time.Now(), what: what, node: i}, conn, params, resultOf(what))
			})
		}
		s := &scans{conn: conn, node: i, first: both[0]}
		h.repeat(stop, func() { s.next(h) })
	}
	return h
}

// repeat does something again and again until stop.
func (h *hammered) repeat(stop <-chan struct{}, f func()) {
	h.wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f()
				time.Sleep(2 * time.Millisecond)
			}
		}
	})
}

// resultOf reads the result of a method. That of mutate_rows is an error if each of its rows has one.
func resultOf(method string) func(*wire.Decoder) error {
	if method != api.MethodMutateRows {
		return func(d *wire.Decoder) error { d.Skip(); return d.Err() }
	}
	return func(d *wire.Decoder) error {
		var refused error
		done := 0
		err := api.DecodeMutateResults(d, 2, func(_ int, _ int64, e *rpc.Error) {
			if e != nil {
				refused = e
			} else {
				done++
			}
		})
		if err != nil || done > 0 {
			return err
		}
		return refused
	}
}

// scans are scans of a principal from the first row of a tablet on, enough that some were begun while it had the right.
type scans struct {
	conn    *rpc.Conn
	node    int
	first   []byte
	cursors []uint64
}

const scansAtOnce = 20

// next begins one more scan, unless there are enough or it is refused, and goes on with the oldest.
func (s *scans) next(h *hammered) {
	open := &api.ScanOpenRequest{Table: "t", Start: s.first, BatchRows: 1}
	if len(s.cursors) < scansAtOnce {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_ = s.conn.Call(ctx, api.MethodScanOpen, open.Append, s.readCursor) // it is refused at some time
		cancel()
	}
	cursor := uint64(1) // of no client
	if len(s.cursors) > 0 {
		cursor, s.cursors = s.cursors[0], s.cursors[1:]
	}
	h.one(attempt{begun: time.Now(), what: api.MethodScanNext, node: s.node}, s.conn, (&api.ScanNextRequest{Cursor: cursor}).Append, s.readCursor)
}

// readCursor keeps the cursor of a batch, if the scan goes on.
func (s *scans) readCursor(d *wire.Decoder) error {
	for range d.Map() {
		if d.Str() != "cursor" {
			d.Skip()
		} else if !d.IsNil() {
			s.cursors = append(s.cursors, d.Uint())
		}
	}
	return d.Err()
}

func (h *hammered) one(a attempt, conn *rpc.Conn, params func(*wire.Encoder), result func(*wire.Decoder) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := conn.Call(ctx, a.what, params, result)
	if err != nil && !errors.As(err, &a.err) {
		a.err = rpc.AsError(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

// until waits for a request of each method to each node which was begun after a time; of those from
// the beginning it must have been answered. It reports whether they came within the given duration, and the counts.
func (h *hammered) until(begun time.Time, within time.Duration) (map[string]int, bool) {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		count := map[string]int{}
		h.mu.Lock()
		for _, a := range h.all {
			if a.begun.After(begun) && (a.err == nil || !begun.IsZero()) {
				count[fmt.Sprint(a.what, a.node)]++
			}
		}
		h.mu.Unlock()
		if len(count) == 3*h.methods || time.Now().After(end) {
			return count, len(count) == 3*h.methods
		}
	}
}

// hammerAll spreads tablets over all nodes and sends requests to all of them, until each method was answered by each. If a tablet is moved
// meanwhile, as the master may do, its node has no more answers to give, so the requests begin anew.
func (f *testCluster) hammerAll(admin *client.Client, conns [3]*rpc.Conn) (h *hammered, stop chan struct{}) {
	f.t.Helper()
	var count map[string]int
	for range 4 {
		stop = make(chan struct{})
		h = hammer(conns, f.spread(admin), stop)
		var all bool
		if count, all = h.until(time.Time{}, 10*time.Second); all {
			return h, stop
		}
		close(stop)
		h.wait()
	}
	f.t.Fatalf("requests that were answered: %v", count)
	return nil, nil
}

func (h *hammered) wait() []attempt {
	h.wg.Wait()
	return h.all
}

// TestRevocationIsInForce: I12. When a revocation has returned, no node answers anything by
// the right that was taken away, though requests were under way: neither when all is well, nor
// while a node is cut off from the lock service, which then answers that it does not know.
func TestRevocationIsInForce(t *testing.T) {
	f, admin, firstTabletWorkers := secureThree(t)
	ctx := within(t, 180*time.Second)
	cred := f.user(admin, "ann")
	g := client.Grant{Principal: "ann", Table: "t", Family: "f", Rights: "read,write"}
	var conns [3]*rpc.Conn
	for i := range conns {
		conns[i] = f.dialAs(i, cred)
	}
	for _, cut := range []string{"nobody", "a follower", "the leader"} {
		began := time.Now()
		f.await(0, "three voters", votersAlive(3))
		away := -1 // the node that is cut off
		for i := range f.cfgs {
			if leads := f.leader(admin) == f.cfgs[i].Name; cut == "the leader" && leads || cut == "a follower" && !leads {
				away = i
			}
		}
		if err := admin.Grants().Add(ctx, g); err != nil {
			t.Fatal(err)
		}
		h, stop := f.hammerAll(admin, conns)
		if away >= 0 {
			firstTabletWorkers[away].set(true)
		}
		changeRequest := admin
		if away == 0 {
			changeRequest = f.client(1)
		}
		err := changeRequest.Grants().Revoke(ctx, g)
		for errors.Is(err, client.ErrAmbiguous) { // the master was cut off, and another one knows
			t.Log(err)
			if err = changeRequest.Grants().Revoke(ctx, g); errors.Is(err, client.ErrNoGrant) {
				err = nil
			}
		}
		revoked := time.Now()
		if err != nil {
			t.Errorf("revoke while %s is cut off: %v", cut, err)
		} else if count, all := h.until(revoked, 30*time.Second); !all {
			t.Errorf("requests that have ended: %v", count)
		}
		close(stop)
		all := h.wait()
		if away >= 0 {
			firstTabletWorkers[away].set(false)
		}
		if err != nil {
			t.FailNow()
		}
		check(t, all, revoked, away)
		t.Logf("%s was cut off: %d requests, in %v", cut, len(all), time.Since(began).Round(time.Millisecond))
	}
}

// check looks whether a revocation that returned then was heeded by all, of which one may have
// been cut off.
func check(t *testing.T, all []attempt, revoked time.Time, away int) {
	t.Helper()
	for _, a := range all {
		name := fmt.Sprintf("%s at node %d", a.what, a.node)
		switch {
		case a.err == nil && a.begun.After(revoked):
			t.Errorf("%s was answered %v after the revocation had returned; cut off is %d", name, a.begun.Sub(revoked), away)
		case a.err == nil:
		case a.what == api.MethodScanNext && a.err.Code == api.CodeCursorExpired: // one that was refused has ended
		case a.begun.After(revoked):
			unknown := a.node == away && (a.err.Code == rpc.CodeUnavailable && a.err.Retryable || a.err.Code == rpc.CodeDeadlineExceeded)
			if a.err.Code != api.CodeTableNotFound && !unknown {
				t.Errorf("%s after the revocation: %v; cut off is %d", name, a.err, away)
			}
		case away >= 0: // nodes fail to ask each other, in many ways
		case a.err.Code == rpc.CodePermissionDenied && a.err.Details["executed"] == nil:
			t.Errorf("%s: it is not told whether it was executed: %v", name, a.err)
		case a.err.Code != rpc.CodePermissionDenied && a.err.Code != api.CodeTableNotFound && a.err.Code != rpc.CodeUnavailable && a.err.Code != api.CodeNotServing:
			t.Errorf("%s while rights changed: %v", name, a.err)
		}
	}
}
