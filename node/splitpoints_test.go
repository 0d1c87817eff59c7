package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/tables"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// A table that is cut beforehand has all its tablets at once; what makes them may be done twice, and makes none again
// that was merged since (I5).
func TestCutTable(t *testing.T) {
	ctx := context.Background()
	n, err := Start(ctx, Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := n.Close(short); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Tables().CreateSplit(ctx, "t", []string{"t", "g", "n"}, spec)
	if err != nil {
		t.Fatal(err)
	}
	ends := func() string {
		var all [][]byte
		stats, err := n.tabletServer.Users().TabletStats("t")
		if err != nil {
			return err.Error()
		}
		for i := range stats {
			all = append(all, append(append(bytes.Clone(stats[i].Start), '-'), stats[i].End...))
		}
		return string(bytes.Join(all, []byte(" ")))
	}
	if got := ends(); got != "-g g-n n-t t-" {
		t.Fatalf("the table begins with %s", got)
	}
	for _, row := range []string{"a", "g", "h", "z"} {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte(row))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Tablets().Merge(ctx, "t", client.TabletRef{Row: "h"}); err != nil {
		t.Fatal(err)
	}
	// A master that knows nothing of all this.
	stale := n.masterTablets()
	late := &namespace.SplitPoints{First: s.ID + 1, Ends: [][]byte{[]byte("g"), []byte("n"), []byte("t")}}
	for i := range late.Tablets() {
		if err := stale.CreateFirstTablet(ctx, late, s.ID, i); err != nil {
			t.Fatal(err)
		}
	}
	if got := rowsOf(t, n, s.ID); got != "g t (end)" {
		t.Errorf("METADATA has tablets to %s", got)
	}
	if got := ends(); got != "-g g-t t-" {
		t.Errorf("the table has %s", got)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		n.commands.NudgeMaster(ctx)
		_, cut, _, err := namespace.ReadTable(ctx, n.catalog.Meta, "t")
		if err == nil && cut == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the cuts are still there: %v, %v", cut, err)
		}
	}
	if _, err := c.Tables().SetFamily(ctx, "t", table.FamilySpec{Name: "h"}); err != nil {
		t.Error(err)
	}
}

func rowsOf(t *testing.T, n *Node, tableID uint64) string {
	var text bytes.Buffer
	if err := n.rows.Tablets(context.Background(), tableID, func(r *metadata.Row) error {
		if len(r.End) == 0 {
			text.WriteString("(end)")
			return nil
		}
		_, err := fmt.Fprintf(&text, "%s ", r.End)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// After the creation returns, all tablets are served, although METADATA names a server before it has loaded a tablet.
func TestMadeTableIsServed(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s := makeTable(ctx, t, c)
	if stats, err := n.tabletServer.Users().TabletStats("t"); err != nil || len(stats) != 1 {
		t.Fatalf("%d tablets are served, %v", len(stats), err)
	}
	n.stopMaster(ctx)
	server, key := n.tabletServer.Current(), metadata.Key(nil, s.ID, nil)
	if err := server.Users.Unload(ctx, tablet.Ref{Table: s.ID}); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() { <-n.tables.AwaitServed(s, 1); close(done) }()
	select {
	case <-done:
		t.Fatal("waited for no longer than METADATA told of a server")
	case <-time.After(500 * time.Millisecond):
	}
	row, err := n.rows.Get(ctx, s.ID, nil)
	if err != nil || row.Server == "" {
		t.Fatal(row, err)
	}
	if err := server.Load(ctx, key, row.Generation); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(tables.ServedTimeout / 2):
		t.Error("the table is served, and is waited for")
	}
	// A table whose tablets no server loads delays no other change, and its creation is acknowledged in time.
	short, left := context.WithTimeout(ctx, 4*time.Second)
	defer left()
	made := make(chan error, 1)
	go func() {
		_, err := c.Tables().Create(short, "u", familyF(t))
		made <- err
	}()
	for {
		if _, err := c.Tables().Describe(ctx, "u"); err == nil {
			break
		} else if !errors.Is(err, client.ErrNoTable) {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := c.Tables().DropNow(ctx, "t"); err != nil || time.Since(began) > 2*time.Second {
		t.Errorf("another table was dropped after %v: %v", time.Since(began), err)
	}
	if err := <-made; err != nil {
		t.Errorf("a table that is there, and not served: %v", err)
	}
}
