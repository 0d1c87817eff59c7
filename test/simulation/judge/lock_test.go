package judge

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/test/simulation/workload"
)

func (h *history) file(kind workload.Kind, f workload.File) *workload.Op {
	f.Path = "/f"
	return h.add(workload.Op{Kind: kind, File: &f})
}

func (h *history) hold(session, generation uint64, from, to int64) *workload.Op {
	op := h.add(workload.Op{Kind: workload.HoldLock, Hold: &workload.Hold{Lock: "/l", Session: session, Generation: generation, From: from, To: to, Released: to + 1}})
	op.Call, op.Return = from-1, to+2
	return op
}

var lockTests = []judged{
	{"file: changes", "", func(h *history) {
		h.file(workload.SetFile, workload.File{Value: "a", FoundGeneration: 7})
		h.file(workload.GetFile, workload.File{FoundGeneration: 7, FoundValue: "a"})
		h.file(workload.SetFile, workload.File{Value: "b", Generation: 7, Old: "a", FoundGeneration: 9})
		h.file(workload.SetFile, workload.File{Value: "c", Generation: 7, Old: "a", Refused: true, FoundGeneration: 9})
		h.file(workload.DeleteFile, workload.File{Generation: 9, Old: "b"})
		h.file(workload.CachedFile, workload.File{})
	}},
	{"file: stale cache", "files", func(h *history) {
		h.file(workload.SetFile, workload.File{Value: "a", FoundGeneration: 7})
		h.file(workload.SetFile, workload.File{Value: "b", Generation: 7, Old: "a", FoundGeneration: 9})
		h.file(workload.CachedFile, workload.File{FoundGeneration: 7, FoundValue: "a"})
	}},
	{"file: two sets of one generation", "files", func(h *history) {
		h.file(workload.SetFile, workload.File{Value: "a", FoundGeneration: 7})
		h.file(workload.SetFile, workload.File{Value: "b", Generation: 7, Old: "a", FoundGeneration: 9})
		h.file(workload.SetFile, workload.File{Value: "c", Generation: 7, Old: "a", FoundGeneration: 10})
	}},
	{"file: unknown set", "", func(h *history) {
		h.file(workload.SetFile, workload.File{Value: "a", FoundGeneration: 7})
		op := h.file(workload.SetFile, workload.File{Value: "b", Generation: 7, Old: "a"})
		op.Outcome, op.Return = workload.Unknown, workload.Infinity
		h.file(workload.GetFile, workload.File{FoundGeneration: 7, FoundValue: "a"})
		h.file(workload.GetFile, workload.File{FoundGeneration: 9, FoundValue: "b"})
	}},
	{"file: lost", "files", func(h *history) {
		h.file(workload.SetFile, workload.File{Value: "a", FoundGeneration: 7})
		h.file(workload.GetFile, workload.File{})
	}},
	{"lock: two holds", "", func(h *history) {
		h.hold(1, 5, 10, 20)
		h.hold(2, 6, 22, 30)
	}},
	{"lock: acquired by a session that expired before the answer", "", func(h *history) {
		late := h.hold(1, 5, 10, 30)
		late.Hold.From, late.Hold.Released = 30, workload.Infinity
		h.hold(2, 6, 15, 20)
	}},
	{"lock: overlap", "holds", func(h *history) {
		h.hold(1, 5, 10, 20)
		h.hold(2, 6, 15, 30)
	}},
	{"lock: overlap, by the model", "locks", func(h *history) {
		h.hold(1, 5, 10, 20)
		h.hold(2, 6, 15, 30)
	}},
	{"lock: same generation", "holds", func(h *history) {
		h.hold(1, 5, 10, 20)
		h.hold(2, 5, 22, 30)
	}},
	{"lock: lost session", "", func(h *history) {
		h.hold(1, 5, 10, 20).Hold.Released = workload.Infinity
		h.hold(2, 6, 25, 30)
	}},
	{"lock: shared", "", func(h *history) {
		h.hold(1, 5, 10, 20).Hold.Shared = true
		h.hold(2, 5, 15, 30).Hold.Shared = true
	}},
	{"lock: shared and exclusive", "holds", func(h *history) {
		h.hold(1, 5, 10, 20).Hold.Shared = true
		h.hold(2, 6, 15, 30)
	}},
}

func (h *history) right(kind workload.Kind, rights string) *workload.Op {
	return h.add(workload.Op{Kind: kind, Right: &workload.Right{User: "u", Rights: rights}})
}

func (h *history) readAs(user string) *workload.Op {
	op := h.read("r")
	op.User = user
	return op
}

func denied(op *workload.Op) { op.Outcome, op.Reason = workload.Failed, workload.Denied }

var rightTests = []judged{
	{"right: granted and revoked", "", func(h *history) {
		h.create()
		denied(h.readAs("u"))
		h.right(workload.Grant, "read")
		h.readAs("u")
		h.right(workload.Revoke, "read").Return = 100
		h.readAs("u") // while it is revoked
		h.at = 100
		denied(h.readAs("u"))
	}},
	{"right: none", "rights", func(h *history) {
		h.create()
		h.readAs("u")
	}},
	{"right: another one", "rights", func(h *history) {
		h.create()
		h.right(workload.Grant, "write")
		h.readAs("u")
	}},
	{"right: revoked", "rights", func(h *history) {
		h.create()
		h.right(workload.Grant, "read,write")
		h.right(workload.Revoke, "read,write")
		h.readAs("u")
	}},
	{"right: revocation of unknown outcome", "", func(h *history) {
		h.create()
		h.right(workload.Grant, "read")
		op := h.right(workload.Revoke, "read")
		op.Outcome, op.Return = workload.Unknown, workload.Infinity
		h.readAs("u")
	}},
	{"right: granted but denied", "granted rights", func(h *history) {
		h.create()
		h.right(workload.Grant, "read")
		denied(h.readAs("u"))
	}},
}

func (h *history) blob(kind workload.Kind, found string, ids ...string) *workload.Op {
	return h.add(workload.Op{Kind: kind, Blob: &workload.Blob{ID: "x", Name: "n", Found: found, IDs: ids}})
}

var blobTests = []judged{
	{"blob: right", "", func(h *history) {
		h.blob(workload.PutBlob, "")
		h.blob(workload.GetBlob, "n")
		h.blob(workload.ListBlobs, "", "x")
		h.blob(workload.DeleteBlob, "")
		h.blob(workload.ListBlobs, "")
	}},
	{"blob: corrupt", "blobs", func(h *history) {
		h.blob(workload.PutBlob, "")
		h.blob(workload.GetBlob, "corrupt")
	}},
	{"blob: lost", "blobs", func(h *history) {
		h.blob(workload.PutBlob, "")
		op := h.blob(workload.GetBlob, "")
		op.Outcome, op.Reason = workload.Failed, workload.NoBlob
	}},
	{"blob: not listed", "blobs", func(h *history) {
		h.blob(workload.PutBlob, "")
		h.blob(workload.ListBlobs, "")
	}},
	{"blob: deleted but listed", "blobs", func(h *history) {
		h.blob(workload.PutBlob, "")
		h.blob(workload.DeleteBlob, "")
		h.blob(workload.ListBlobs, "", "x")
	}},
}

// TestUndecided tests that a part that takes too many steps is reported.
func TestUndecided(t *testing.T) {
	h := &history{}
	h.create()
	for i := range 12 {
		h.unknown("r", fmt.Sprintf("set a1:v=%d", i))
	}
	h.read("r", "a1:v=none")
	if r := Judge(h.ops, Options{Steps: 1000}); len(r.Undecided) != 1 || len(r.Violations) != 0 {
		t.Errorf("undecided %q, violations %v", r.Undecided, r.Violations)
	}
}

// metaRow returns a row of METADATA.
func metaRow(tableID, id uint64, start, end, server string) *table.Row {
	m := &tablet.Meta{ID: id, Table: tableID, Start: []byte(start), End: []byte(end)}
	row := &metadata.Row{Table: tableID, Generation: metadata.FirstGeneration(id), Server: server, Meta: tablet.EncodeMeta(m)}
	if end != "" {
		row.End = []byte(end)
	}
	r := &table.Row{Key: row.Key()}
	for _, x := range metadata.Create(row, "").Else {
		if x.Op == table.OpSet {
			r.Cells = append(r.Cells, table.Cell{Family: x.Family, Qualifier: x.Qualifier, Timestamp: 1, Value: x.Value})
		}
	}
	return r
}

// TestCheck tests the check of METADATA.
func TestCheck(t *testing.T) {
	own := metaRow(metadata.TableID, metadata.FirstTabletID, string(metadata.RootEnd()), "", "s1")
	for name, test := range map[string]struct {
		rows []*table.Row
		bad  int
	}{
		"right":            {[]*table.Row{own, metaRow(20, 30, "", "g", "s1"), metaRow(20, 31, "g", "", "s2")}, 0},
		"a gap":            {[]*table.Row{own, metaRow(20, 30, "", "g", "s1"), metaRow(20, 31, "h", "", "s2")}, 1},
		"after a split":    {[]*table.Row{own, metaRow(20, 30, "", "g", "s1"), metaRow(20, 31, "", "", "s1")}, 0},
		"two without end":  {[]*table.Row{own, metaRow(20, 30, "", "", "s1"), metaRow(20, 31, "", "", "s1")}, 1},
		"another end":      {[]*table.Row{own, {Key: metaRow(20, 30, "", "h", "s1").Key, Cells: metaRow(20, 30, "", "g", "s1").Cells}, metaRow(20, 31, "g", "", "s1")}, 1},
		"no first":         {[]*table.Row{own, metaRow(20, 31, "g", "", "s2")}, 1},
		"no last":          {[]*table.Row{own, metaRow(20, 30, "", "g", "s1"), metaRow(21, 32, "", "", "s2")}, 1},
		"a tablet twice":   {[]*table.Row{own, metaRow(20, 30, "", "g", "s1"), metaRow(20, 30, "g", "", "s2")}, 1},
		"no METADATA":      {[]*table.Row{metaRow(20, 30, "", "", "s1")}, 1},
		"a row of no form": {[]*table.Row{own, {Key: []byte("x")}, metaRow(20, 30, "", "", "s1")}, 1},
	} {
		if bad := Check(test.rows, nil, 1); len(bad) != test.bad {
			t.Errorf("%s: %v, want %d", name, bad, test.bad)
		}
	}
	schema := table.NewSchema("t", 22)
	if bad := Check([]*table.Row{own}, []*table.Schema{schema}, 1); len(bad) != 1 {
		t.Errorf("a table without tablets: %v", bad)
	}
}

// TestCheckServed tests the check of what servers serve.
func TestCheckServed(t *testing.T) {
	for name, test := range map[string]struct {
		tablets []Served
		bad     int
	}{
		"right":        {[]Served{{1, "n1", "", "g"}, {2, "n2", "g", ""}}, 0},
		"a gap":        {[]Served{{1, "n1", "", "g"}, {2, "n2", "h", ""}}, 1},
		"two servers":  {[]Served{{1, "n1", "", "g"}, {1, "n2", "", "g"}, {2, "n2", "g", ""}}, 1},
		"none":         {nil, 1},
		"two, no ends": {[]Served{{1, "n1", "", ""}, {1, "n2", "", ""}}, 1},
	} {
		if bad := CheckServed("t", test.tablets, 1); len(bad) != test.bad {
			t.Errorf("%s: %v, want %d", name, bad, test.bad)
		}
	}
}
