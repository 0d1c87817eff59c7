package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// tabletsOf waits until a table's tablets are all served, and returns them. They must have all rows, once (I5).
func tabletsOf(t *testing.T, c *client.Client, name string, want int) []client.TabletInfo {
	t.Helper()
	var last []client.TabletInfo
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		info, err := c.Tables().Describe(ctx, name)
		cancel()
		if err != nil {
			continue
		}
		if last = info.Tablets; len(last) != want {
			continue
		}
		whole := len(last[0].Start) == 0 && len(last[want-1].End) == 0
		for i := 1; i < want; i++ {
			whole = whole && string(last[i].Start) == string(last[i-1].End)
		}
		if whole {
			return last
		}
	}
	t.Fatalf("table %s does not come to have %d tablets: %+v", name, want, last)
	return nil
}

// Tablets are split, moved and merged while clients write, and each server of a table in turn goes: a merge right after
// a split leaves nothing behind that makes the lower half anew (I1, I5).
func TestTabletsAreChangedUnderTraffic(t *testing.T) {
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
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
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	row := func(i int) string { return fmt.Sprintf("row%02d", i%100) }
	written := 0
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for ; ; written++ {
			select {
			case <-stop:
				return
			default:
			}
			m := client.NewRowMutation(row(written)).Set("f:q", []byte(fmt.Sprint(written)))
			if err := c.Table("t").Apply(ctx, m); err != nil {
				t.Errorf("write %d: %v", written, err)
				return
			}
		}
	})
	must := func(done *client.TabletChange, err error) *client.TabletChange {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	rounds := 1
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil {
		rounds = max(1, times)
	}
	for round := range rounds {
		split := must(c.Tablets().Split(ctx, "t", row(30)))
		if string(split.At) != row(30) || split.Lower == split.ID {
			t.Fatalf("split: %+v", split)
		}
		must(c.Tablets().Split(ctx, "t", row(60)))
		must(c.Tablets().Merge(ctx, "t", client.TabletRef{Row: row(10)})) // where they are, right after the split
		tablets := tabletsOf(t, c, "t", 2)
		for i := range f.nodes {
			to := f.cfgs[(i+round)%3].Name
			done := must(c.Tablets().Move(ctx, "t", client.TabletRef{ID: tablets[i%2].ID}, to))
			if done.ID != tablets[i%2].ID || f.nodes[(i+round)%3].ID() != done.Node {
				t.Errorf("moved to %s: %+v", to, done)
			}
		}
		one := must(c.Tablets().Merge(ctx, "t", client.TabletRef{Row: row(99)})) // on two nodes
		must(c.Tablets().Split(ctx, "t", row(45)))
		if again := must(c.Tablets().Merge(ctx, "t", client.TabletRef{Row: row(50)})); again.ID != one.ID {
			t.Errorf("merged into %d, and then into %d", one.ID, again.ID)
		}
		// Its server closes at once: the next server of the tablet finds one.
		for i := range f.nodes {
			if f.nodes[i].ID() == one.Node {
				f.stop(i)
				tabletsOf(t, c, "t", 1)
				f.start(i)
				f.await(i, "three voters again", votersAlive(3))
				if round < rounds-1 {
					awaitAllLogReplicas(t, f)
				}
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	n := 0
	s := c.Table("t").Scan(ctx)
	for s.Next() {
		newest := written - 1 - (written-1-n)%100 // the last write to it
		if got := string(s.Row().Cells[0].Value); string(s.Row().Key) != row(n) || got != fmt.Sprint(newest) {
			t.Fatalf("row %d is %q with %s, want %d", n, s.Row().Key, got, newest)
		}
		n++
	}
	if err := s.Err(); err != nil || n != min(written, 100) {
		t.Fatalf("%d rows after %d writes, %v", n, written, err)
	}
	refusals(t, ctx, c)
}

// refusals asks for what cannot be.
func refusals(t *testing.T, ctx context.Context, c *client.Client) {
	split := func(table, at string) func() error {
		return func() error { _, err := c.Tablets().Split(ctx, table, at); return err }
	}
	move := func(table string, id uint64, to string) func() error {
		return func() error { _, err := c.Tablets().Move(ctx, table, client.TabletRef{ID: id}, to); return err }
	}
	merge := func(table string, id uint64) func() error {
		return func() error { _, err := c.Tablets().Merge(ctx, table, client.TabletRef{ID: id}); return err }
	}
	if err := split("t", "row10")(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what string
		do   func() error
		want error
	}{
		{"split at an end", split("t", "row10"), client.ErrBadSplit},
		{"split no table", split("nosuch", "a"), client.ErrNoTable},
		{"split METADATA", split("METADATA", "a"), client.ErrSystemTable},
		{"move no tablet", move("t", 1<<40, "n1"), client.ErrNoTablet},
		{"move no table", move("nosuch", 1, "n1"), client.ErrNoTable},
		{"move to no node", move("t", 1, "n9"), client.ErrNodeNotFound},
		{"merge no tablet", merge("t", 1<<40), client.ErrNoTablet},
		{"merge METADATA", merge("METADATA", 2), client.ErrSystemTable},
		{"compact no tablet", func() error { return c.Tablets().Compact(ctx, "t", client.TabletRef{ID: 1 << 40}, true) }, client.ErrNoTablet},
	} {
		if err := x.do(); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, err, x.want)
		}
	}
	if err := c.Tablets().Compact(ctx, "t", client.TabletRef{Row: "row50"}, true); err != nil {
		t.Error(err)
	}
	if _, err := c.Tablets().Merge(ctx, "t", client.TabletRef{Row: "row05"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Tablets().Merge(ctx, "t", client.TabletRef{Row: "row05"}); !errors.Is(err, client.ErrNoTablet) {
		t.Errorf("merge the only tablet: %v", err)
	}
}
