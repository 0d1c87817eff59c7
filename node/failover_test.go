package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestTabletsGoOn (I1, I4): whichever node goes, the others serve what it had, from its commit logs;
// and all that was acknowledged is there, through one client that knows only what it has learnt.
func TestTabletsGoOn(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c, err := client.Open(ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	const tables = 6
	for i := range tables {
		if _, err := c.Tables().Create(ctx, fmt.Sprintf("t%d", i), spec); err != nil {
			t.Fatal(err)
		}
	}
	written := 0
	write := func() {
		t.Helper()
		for range 20 {
			for i := range tables {
				m := client.NewRowMutation(fmt.Sprintf("row%04d", written)).Set("f:q", []byte(fmt.Sprint(written)))
				if err := c.Table(fmt.Sprintf("t%d", i)).Apply(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			written++
		}
	}
	check := func() {
		t.Helper()
		for i := range tables {
			n := 0
			s := c.Table(fmt.Sprintf("t%d", i)).Scan(ctx)
			for s.Next() {
				if got := string(s.Row().Cells[0].Value); got != fmt.Sprint(n) {
					t.Fatalf("row %q of t%d is %q", s.Row().Key, i, got)
				}
				n++
			}
			if err := s.Err(); err != nil || n != written {
				t.Fatalf("t%d has %d rows of %d, %v", i, n, written, err)
			}
		}
	}
	write()
	for i := range f.nodes {
		f.stop(i)
		start := time.Now()
		write()
		check()
		t.Logf("without %s: written and read after %v", f.cfgs[i].Name, time.Since(start).Round(time.Millisecond))
		f.start(i)
		f.await(i, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, f) // of one that is on a single node, that node must stay
	}
	check()
}

// awaitAllLogReplicas waits until what any node appends goes to three.
func awaitAllLogReplicas(t *testing.T, f *testCluster) {
	t.Helper()
	for i := range f.nodes {
		awaitLogReplicas(t, f, i, 3)
	}
}
