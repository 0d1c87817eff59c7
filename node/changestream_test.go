package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestChangeStream (CS1, CS3): a reader gets each change of a table once, in the order of its row, while tablets are split, merged and moved and
// servers die. A second reader continues from its token.
func TestChangeStream(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c := good(client.Open(ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	defer c.Close()
	good(c.Tables().CreateSplit(ctx, "t", []string{"row10"}, good(table.ParseFamilySpec("f"))))
	stream := good(c.Table("t").Changes(client.ChangesFrom{Since: time.UnixMicro(1)}))
	if _, err := stream.Next(ctx); !errors.Is(err, api.ErrNoChangeStream) {
		t.Fatalf("changes of a table without a stream: %v", err)
	}
	s := good(c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	if s.ChangeRetention != time.Hour {
		t.Fatalf("schema %+v", s)
	}
	last, seq := map[string]int{}, map[string]uint64{}
	read := func(r *client.Changes, until int) {
		t.Helper()
		for last["row00"] < until || last["row19"] < until {
			changes, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range changes {
				row, n := string(x.Row), 0
				if len(x.Mutations) != 1 || x.Mutations[0].Timestamp != x.Time {
					t.Fatalf("change %+v", x)
				}
				if _, err := fmt.Sscan(string(x.Mutations[0].Value), &n); err != nil || n != last[row]+1 || x.Seq <= seq[row] {
					t.Fatalf("row %s: change %d to %d after change %d to %d", row, x.Seq, n, seq[row], last[row])
				}
				last[row], seq[row] = n, x.Seq
			}
		}
	}
	n := 0
	put := func() {
		t.Helper()
		n++
		for i := range 20 {
			if err := c.Table("t").Apply(ctx, client.NewRowMutation(fmt.Sprintf("row%02d", i)).Set("f:q", fmt.Append(nil, n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	read(stream, 1)
	good(c.Tablets().Split(ctx, "t", "row05"))
	put()
	for i := range f.nodes {
		f.stop(i)
		put()
		read(stream, n)
		f.start(i)
		f.await(i, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, f)
	}
	next := good(c.Table("t").Changes(client.ChangesFrom{Token: stream.Token()}))
	put()
	read(next, n)
	for row, got := range last {
		if got != n {
			t.Errorf("row %s has %d changes, want %d", row, got, n)
		}
	}
	if _, err := c.Table("t").Changes(client.ChangesFrom{Token: "x"}); !errors.Is(err, client.ErrBadToken) {
		t.Errorf("a malformed token: %v", err)
	}
	if w := next.Watermark(); w.IsZero() || time.Since(w) > time.Hour {
		t.Errorf("watermark %v", w)
	}
}

// TestManyReadersOfChanges: readers that wait for changes do not take the places of other requests (I13).
func TestManyReadersOfChanges(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := good(client.Open(ctx, f.addrs[0], client.Config{}))
	defer c.Close()
	good(c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f"))))
	good(c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	var readers sync.WaitGroup
	waiting, stop := context.WithCancel(ctx)
	defer readers.Wait()
	defer stop()
	const n = 2000 // of most methods, 1024 calls may run at once; a connection may have as many
	second := good(client.Open(ctx, f.addrs[0], client.Config{}))
	defer second.Close()
	for i := range n {
		readers.Go(func() {
			r := good([]*client.Client{c, second}[i%2].Table("t").Changes(client.ChangesFrom{Since: time.Now()}))
			for waiting.Err() == nil {
				_, _ = r.Next(waiting)
			}
		})
	}
	eventually(t, "the readers wait", func() bool { return f.nodes[0].InFlight() >= 3*n/4 })
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	other := good(client.Open(short, f.addrs[0], client.Config{RetryTimeMax: time.Millisecond}))
	defer other.Close()
	if _, err := other.Tables().Usage(short, "t"); err != nil {
		t.Errorf("another request: %v", err)
	}
}
