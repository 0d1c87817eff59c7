package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// checkMetadata waits until METADATA describes whole tables, and the nodes serve exactly what it describes: METADATA's own tablets and those of users
// join without a gap or an overlap (I4, I5). It returns the numbers of METADATA's own tablets, including the root tablet, and of others.
func checkMetadata(t *testing.T, f *testCluster, c *client.Client, tables int) (own, users int) {
	t.Helper()
	why := ""
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if own, users, why = metadataFault(f, c, tables); why == "" {
			return own, users
		}
	}
	t.Fatal(why)
	return 0, 0
}

func metadataFault(f *testCluster, c *client.Client, tables int) (own, users int, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var metadataTablets []tablet.TabletStats
	alive := map[string]bool{}
	for _, n := range f.nodes {
		metadataTablets = append(metadataTablets, n.MetadataTablets()...)
		alive[n.ServerName()], alive[n.ServerName()+".metadata"] = true, true
	}
	slices.SortFunc(metadataTablets, func(a, b tablet.TabletStats) int { return strings.Compare(string(a.Start), string(b.Start)) })
	var before []byte
	for i, m := range metadataTablets {
		if string(m.Start) != string(before) || i > 0 && len(before) == 0 {
			return 0, 0, fmt.Sprintf("METADATA's tablet from %x follows one to %x", m.Start, before)
		}
		before = m.End
	}
	if len(metadataTablets) == 0 || len(before) > 0 {
		return 0, 0, fmt.Sprintf("METADATA's tablets end at %x", before)
	}
	ends := map[uint64][][]byte{}
	s := c.Table(metadata.Name).Scan(ctx, client.Filter(metadata.Rows()))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err != nil {
			return 0, 0, err.Error()
		}
		if !alive[r.Server] || strings.HasSuffix(r.Server, ".metadata") != (r.Table == metadata.TableID) {
			return 0, 0, fmt.Sprintf("the tablet of table %d to %x is on %q", r.Table, r.End, r.Server)
		}
		ends[r.Table] = append(ends[r.Table], r.End)
	}
	if err := s.Err(); err != nil {
		return 0, 0, err.Error()
	}
	if got := ends[metadata.TableID]; !slices.EqualFunc(got, metadataTablets[1:], func(end []byte, m tablet.TabletStats) bool { return string(end) == string(m.End) }) {
		return 0, 0, fmt.Sprintf("METADATA tells of %d tablets of its own, and %d are served", len(got), len(metadataTablets)-1)
	}
	delete(ends, metadata.TableID)
	if len(ends) != tables {
		return 0, 0, fmt.Sprintf("METADATA tells of %d tables, there are %d", len(ends), tables)
	}
	schemas, err := c.Tables().List(ctx)
	if err != nil {
		return 0, 0, err.Error()
	}
	for _, sc := range schemas {
		info, err := c.Tables().Describe(ctx, sc.Name)
		if err != nil {
			return 0, 0, err.Error()
		}
		var start []byte
		for i, x := range info.Tablets {
			if string(x.Start) != string(start) || i < len(ends[sc.ID]) && string(x.End) != string(ends[sc.ID][i]) {
				return 0, 0, fmt.Sprintf("tablet %d of table %s is from %q to %q, behind %q", i, sc.Name, x.Start, x.End, start)
			}
			start = x.End
		}
		if len(start) > 0 || len(info.Tablets) != len(ends[sc.ID]) {
			return 0, 0, fmt.Sprintf("of table %s %d tablets are served up to %q, and METADATA tells of %d", sc.Name, len(info.Tablets), start, len(ends[sc.ID]))
		}
		users += len(info.Tablets)
	}
	return len(metadataTablets), users, ""
}

// TestMetadataSplits: METADATA splits repeatedly while the tablets that it describes split, move and merge, and servers lose their locks: no acknowledged
// write is lost, and METADATA stays whole (I1, I4, I5).
func TestMetadataSplits(t *testing.T) {
	const tables = 3
	f := form(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	c, err := client.Open(ctx, strings.Join(f.addrs, ","), client.Config{RetryTimeMax: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	for i := range tables {
		if _, err := c.Tables().Create(ctx, fmt.Sprintf("t%d", i), spec); err != nil {
			t.Fatal(err)
		}
	}
	row := func(i int) string { return fmt.Sprintf("row%04d", i*37%1000) }
	var written [tables]int
	var work sync.WaitGroup
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	for i := range tables {
		work.Go(func() {
			for ; !stopped(); written[i]++ {
				m := client.NewRowMutation(row(written[i])).SetAt("f:q", 1, []byte(row(written[i])))
				if err := c.Table(fmt.Sprintf("t%d", i)).Apply(ctx, m, client.WithReplay(client.ReplayIdempotent)); err != nil {
					t.Errorf("write %d: %v", written[i], err)
					return
				}
			}
		})
	}
	// Rows of METADATA come and go all the time.
	work.Go(func() {
		for i := 0; !stopped(); i++ {
			name := fmt.Sprintf("t%d", i%tables)
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			var err error
			switch {
			case i%7 == 6:
				_, err = c.Tablets().Merge(short, name, client.TabletRef{Row: row(i)})
			case i%5 == 4:
				_, err = c.Tablets().Move(short, name, client.TabletRef{Row: row(i)}, f.cfgs[i%3].Name)
			default:
				_, err = c.Tablets().Split(short, name, row(i))
			}
			cancel()
			if err != nil && !stopped() {
				t.Logf("change %d: %v", i, err) // a tablet cannot be split twice, nor the only one merged
			}
		}
	})
	splits := 0
	rounds := 2
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil {
		rounds *= max(1, times)
	}
	for round := range rounds {
		for end, want := time.Now().Add(30*time.Second), splits+2; splits < want && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			for _, n := range f.nodes {
				ok, err := n.SplitMetadata(ctx)
				if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, tablet.ErrMetaChanged) {
					t.Errorf("split METADATA on %s: %v", n.ServerName(), err)
				}
				if ok {
					splits++
				}
			}
		}
		n := f.nodes[round%3]
		if round%2 == 1 { // the node with most of METADATA
			n = slices.MaxFunc(f.nodes, func(a, b *node.Node) int { return len(a.MetadataTablets()) - len(b.MetadataTablets()) })
		}
		if err := n.LoseLock(ctx); err != nil {
			t.Logf("%s: %v", n.ServerName(), err)
		}
	}
	began := time.Now()
	for own := 0; own < 3 && time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) { // and it goes on
		own = 0
		for _, n := range f.nodes {
			own += len(n.MetadataTablets())
		}
	}
	close(stop)
	work.Wait()
	own, users := checkMetadata(t, f, c, tables)
	t.Logf("METADATA has split %d times; it has %d tablets of its own and tells of %d", splits, own, users)
	if own < 2+splits || splits < 2*rounds {
		t.Errorf("METADATA has %d tablets after %d splits", own, splits)
	}
	for i := range tables {
		n := 0
		s := c.Table(fmt.Sprintf("t%d", i)).Scan(ctx)
		for ; s.Next(); n++ {
			if r := s.Row(); string(r.Cells[0].Value) != string(r.Key) {
				t.Fatalf("row %q is %q", r.Key, r.Cells[0].Value)
			}
		}
		if err := s.Err(); err != nil || n < min(written[i], 1000) {
			t.Errorf("t%d has %d rows of %d written, %v", i, n, written[i], err)
		}
	}
}
