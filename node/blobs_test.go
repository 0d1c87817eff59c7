package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
)

// TestLostDisks (I1): a node whose block store is gone, logs and SSTables, has every
// acknowledged row back from the other nodes.
func TestLostDisks(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	awaitLogReplicas(t, f, 0, 3)
	c := f.client(0)
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			m := client.NewRowMutation(fmt.Sprintf("row%04d", i)).Set("f:q", []byte(fmt.Sprint(i)))
			if err := c.Table("t").Apply(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 100)
	if err := c.Tables().Compact(ctx, "t", true); err != nil { // in SSTables
		t.Fatal(err)
	}
	put(100, 200) // in the log
	f.stop(0)
	if err := os.RemoveAll(filepath.Join(f.cfgs[0].DataDirs[0], "blobs")); err != nil {
		t.Fatal(err)
	}
	f.start(0)
	rows := 0
	scan := f.client(0).Table("t").Scan(ctx)
	for scan.Next() {
		r := scan.Row()
		if want := fmt.Sprint(rows); len(r.Cells) != 1 || string(r.Cells[0].Value) != want {
			t.Fatalf("row %q is %v, want %q", r.Key, r.Cells, want)
		}
		rows++
	}
	if err := scan.Err(); err != nil || rows != 200 {
		t.Fatalf("%d rows of 200, %v", rows, err)
	}
}

// awaitLogReplicas waits until what node i appends to its commit logs goes to n nodes: that of METADATA's tablets, too, if
// it has some.
func awaitLogReplicas(t *testing.T, f *testCluster, i, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	locks, err := session.NewClient(session.Config{Locator: session.Addresses(f.addrs)})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = logReplicas(ctx, locks, f.nodes[i].ID(), n); err == nil {
			return
		}
	}
	t.Fatalf("the commit logs of %s are not on %d nodes: %v", f.cfgs[i].Name, n, err)
}

// logReplicas returns an error if a log of a node's last servers goes to fewer nodes than n.
func logReplicas(ctx context.Context, locks *session.Client, node string, n int) error {
	servers, err := locks.List(ctx, "/logs")
	if err != nil {
		return err
	}
	var newest []string
	last := uint64(0)
	for _, v := range servers {
		of, found := strings.CutPrefix(v.Path, "/logs/"+node+".")
		if !found {
			continue
		}
		of, _, _ = strings.Cut(of, ".")
		if generation, _ := strconv.ParseUint(of, 10, 64); generation > last {
			newest, last = nil, generation
		} else if generation < last {
			continue
		}
		newest = append(newest, v.Path)
	}
	if len(newest) == 0 {
		return errors.New("it has none")
	}
	for _, server := range newest {
		logs, err := locks.List(ctx, server)
		if err != nil {
			return err
		}
		if len(logs) != 1 {
			return fmt.Errorf("%s has %d logs", server, len(logs))
		}
		file, err := locks.Get(ctx, logs[0].Path)
		if err != nil {
			return err
		}
		l, err := replog.DecodeList(file.Data)
		if err != nil {
			return err
		}
		// The two that are open, or were last.
		if k := len(l.Extents); k < 2 || len(l.Extents[k-2].Replicas) != n || len(l.Extents[k-1].Replicas) != n {
			return fmt.Errorf("%s has extents %+v", logs[0].Path, l.Extents)
		}
	}
	return nil
}
