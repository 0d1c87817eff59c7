package node_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	raftapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// BenchmarkReadMetadata reads rows as a master does, of a table with METADATA's families and groups on one node: a million rows of tablets
// with two files each, which 1,000 servers serve.
func BenchmarkReadMetadata(b *testing.B) {
	for _, rows := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) { benchReadMetadata(b, rows) })
	}
}

func benchReadMetadata(b *testing.B, rows int) {
	_, t := metadataLike(b, rows)
	m := metarows.NewTable(nil, func() raftapi.SetOptions { return raftapi.SetOptions{} }, t)
	var all []master.Tablet
	for b.Loop() {
		all = nil
		err := m.ScanAll(b.Context(), "", "", metadata.Places(), func(key string, r *metadata.Row, err error) error {
			all = append(all, master.Tablet{Key: key, Generation: r.Generation, Server: r.Server, Recoveries: r.Recoveries, Damaged: err})
			return err
		})
		if err != nil || len(all) != rows {
			b.Fatal(len(all), err)
		}
	}
	with := liveBytes()
	runtime.KeepAlive(all)
	all = nil
	b.ReportMetric(float64(with-liveBytes())/float64(rows), "kept-B/row")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/read")
}

// liveBytes returns the memory that is in use.
func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// metadataLike returns a table with METADATA's schema that has rows of tablets.
func metadataLike(b *testing.B, rows int) (*client.Client, *client.Table) {
	ctx := b.Context()
	n := start(b, b.TempDir())
	b.Cleanup(func() { stop(b, n) })
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	var specs []table.FamilySpec
	for _, text := range []string{"loc:versions=1,group=location,block=8KiB,in-memory", "files:versions=1,group=files", "log:versions=1,group=files", "event:versions=64,group=files"} {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			b.Fatal(err)
		}
		specs = append(specs, spec)
	}
	if _, err := c.Tables().Create(ctx, "rows", specs...); err != nil {
		b.Fatal(err)
	}
	t := c.Table("rows")
	var batch []*client.RowMutation
	for i := range rows {
		if batch = append(batch, metadataRow(i)); len(batch) == 10_000 || i == rows-1 {
			if err := t.ApplyAll(ctx, batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if err := c.Tables().Compact(ctx, "rows", true); err != nil {
		b.Fatal(err)
	}
	return c, t
}

// metadataRow is the row of a tablet with two files and three events, which one of 1,000 servers serves.
func metadataRow(i int) *client.RowMutation {
	const tableID = 16
	end := fmt.Appendf(nil, "row-%08d", i)
	meta := tablet.Meta{ID: uint64(i), Table: tableID, Start: fmt.Appendf(nil, "row-%08d", i-1), End: end, Redo: uint64(i), LastMajor: time.Unix(1e9, 0)}
	group := tablet.GroupMeta{Name: "default"}
	for j := range 2 {
		x := blobfs.ExtentRef{Length: 60 << 20, CRC: uint32(i), Replicas: []string{serverID(i), serverID(i + 1), serverID(i + 2)}}
		h := blobfs.Handle{ID: blobfs.ID{byte(j), byte(i), byte(i >> 8), byte(i >> 16)}, Length: x.Length, Extents: []blobfs.ExtentRef{x}}
		group.Files = append(group.Files, tablet.FileMeta{Handle: h, MaxSeq: uint64(i), Entries: 60_000, RawBytes: x.Length})
	}
	meta.Groups = []tablet.GroupMeta{group}
	row := &metadata.Row{Table: tableID, End: end, Generation: metadata.FirstGeneration(uint64(i)) + 3, Server: serverID(i) + ".17",
		Addr: fmt.Sprintf("10.0.%d.%d:7106", i/250%4, i%250+1), Meta: tablet.EncodeMeta(&meta)}
	m := client.NewRowMutation(string(row.Key()))
	m.Add(metadata.Create(row, "created").Else...)
	return m.Add(table.Set("event", []byte("1"), table.ServerTimestamp, []byte("loaded by n1.17")), table.Set("event", []byte("2"), table.ServerTimestamp, []byte("minor compaction")))
}

// serverID is the id of one of 1,000 nodes.
func serverID(i int) string { return fmt.Sprintf("n%016x", i%1000) }
