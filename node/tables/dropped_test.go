package tables

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// kept returns the ids of dropped tables, and the number of files that are not needed.
func (m *master) kept() (ids map[uint64]bool, left int) {
	m.t.Helper()
	kept, files, err := m.Node.Catalog.Dropped(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	ids = map[uint64]bool{}
	for id := range kept {
		ids[id] = true
	}
	return ids, len(files)
}

// TestDropAndUndrop (TB3): a dropped table keeps its schema, grants and quota, and gets them back with a name. Its old name is free at once.
func TestDropAndUndrop(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann, bob := m.addUser("ann", acl.Admin), m.addUser("bob", acl.Read|acl.Write)
	s, err := m.create(ann, "t")
	if err != nil {
		t.Fatal(err)
	}
	files := len(m.left(s.ID))
	call := func(as *authz.Subject, method string, values ...any) error {
		return m.port.Call(t, as, method, authztest.Values(values...))
	}
	if err := call(ann, api.MethodDropTable, "t"); err != nil || len(m.left(s.ID)) != files {
		t.Fatalf("dropped: %v, left are %q", err, m.left(s.ID))
	}
	if _, _, err := m.Node.Catalog.Schema(t.Context(), "t"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a dropped table is found: %v", err)
	}
	if ids, left := m.kept(); !ids[s.ID] || len(ids) != 1 || left != 0 {
		t.Errorf("kept are %v, and %d files", ids, left)
	}
	if err := call(ann, api.MethodDropTable, "t"); !errors.Is(err, api.CodeTableNotFound) {
		t.Errorf("dropped twice: %v", err)
	}
	if err := m.RemoveOrphansNow(t.Context()); err != nil || len(m.left(s.ID)) != files {
		t.Errorf("its grants are taken for orphans: %v", err)
	}
	other, err := m.create(ann, "t")
	if err != nil {
		t.Fatalf("another table of the name: %v", err)
	}
	for what, err := range map[string]error{
		"no right":      call(bob, api.MethodUndropTable, "t", map[string]any{"as": "u"}),
		"taken":         call(ann, api.MethodUndropTable, "t"),
		"absent":        call(ann, api.MethodUndropTable, "absent"),
		"an absent id":  call(ann, api.MethodUndropTable, "t", map[string]any{"id": 1 << 40}),
		"a bad name":    call(ann, api.MethodUndropTable, "t", map[string]any{"as": "~u"}),
		"a hidden name": call(ann, api.MethodDescribeTable, "~16.1.t"),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := call(ann, api.MethodUndropTable, "t", map[string]any{"as": "u"}); err != nil {
		t.Fatal(err)
	}
	now, _, err := m.Node.Catalog.Schema(t.Context(), "u")
	if err != nil || now.ID != s.ID || len(now.Families) != len(s.Families) || len(m.left(s.ID)) != files {
		t.Errorf("restored: %+v, %v", now, err)
	}
	if now, _, err := m.Node.Catalog.Schema(t.Context(), "t"); err != nil || now.ID != other.ID {
		t.Errorf("the other table: %+v, %v", now, err)
	}
	if ids, left := m.kept(); len(ids)+left != 0 {
		t.Errorf("kept are %v, and %d files", ids, left)
	}
}

// Of several dropped tables of one name, one must be named by its id. A purged table is gone with its grants.
func TestPurge(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	var ids []uint64
	for range 2 {
		s, err := m.create(ann, "t")
		if err == nil {
			err = m.port.Call(t, ann, api.MethodDropTable, authztest.Values("t"))
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	for _, method := range []string{api.MethodPurgeTable, api.MethodUndropTable} {
		if err := m.port.Call(t, ann, method, authztest.Values("t")); !errors.Is(err, rpc.CodeBadRequest) {
			t.Errorf("%s of one of two: %v", method, err)
		}
	}
	if err := m.port.Call(t, ann, api.MethodPurgeTable, authztest.Values("t", map[string]any{"id": ids[0]})); err != nil || len(m.left(ids[0])) != 0 {
		t.Errorf("purged: %v, left are %q", err, m.left(ids[0]))
	}
	if kept, _ := m.kept(); !kept[ids[1]] || len(kept) != 1 {
		t.Errorf("kept are %v", kept)
	}
	now := time.Now()
	if err := m.PurgeExpiredNow(t.Context(), now.Add(KeptFor-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if kept, _ := m.kept(); len(kept) != 1 {
		t.Error("a table is purged before its time")
	}
	if err := m.PurgeExpiredNow(t.Context(), now.Add(KeptFor+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if kept, _ := m.kept(); len(kept) != 0 || len(m.left(ids[1])) != 0 {
		t.Errorf("kept are %v after their time", kept)
	}
}

// A drop or a restoration that did not end leaves the table as it was, and files that are removed in time.
func TestDropInterrupted(t *testing.T) {
	t.Parallel()
	m := newMaster(t, true)
	ctx := t.Context()
	s, err := m.create(nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Node.Catalog.Keep(ctx, s, time.Now()); err != nil { // and the table's own file is not removed
		t.Fatal(err)
	}
	if kept, left := m.kept(); len(kept)+left != 0 {
		t.Errorf("a drop may go on: %v and %d files", kept, left)
	}
	if tables, err := m.Meta.Tables(ctx); err != nil || tables[s.ID] != "t" {
		t.Errorf("tables %v, %v", tables, err)
	}
	// Any change of the table shows that the drop did not end, or fails.
	_, gen, err := m.Node.Catalog.Schema(ctx, "t")
	if err == nil {
		err = m.Node.Catalog.SaveTable(ctx, s, nil, gen)
	}
	if err != nil {
		t.Fatal(err)
	}
	if kept, left := m.kept(); len(kept) != 0 || left != 1 {
		t.Errorf("kept are %v, and %d files, want 1", kept, left)
	}
	if err := m.PurgeExpiredNow(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, left := m.kept(); left != 0 {
		t.Errorf("%d files are left", left)
	}
	if now, _, err := m.Node.Catalog.Schema(ctx, "t"); err != nil || now.ID != s.ID {
		t.Errorf("the table: %+v, %v", now, err)
	}
	// A drop for good removes the file of one before that did not end.
	if err := m.Node.Catalog.Keep(ctx, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := m.port.Call(t, nil, api.MethodDropTable, authztest.Values("t", map[string]any{"now": true})); err != nil {
		t.Fatal(err)
	}
	if kept, left := m.kept(); len(kept)+left != 0 {
		t.Errorf("kept are %v, and %d files", kept, left)
	}
	// Of one table, the newest file counts.
	u := table.NewSchema("u", 1<<30)
	if err := errors.Join(m.Node.Catalog.Keep(ctx, u, time.Now()), m.Node.Catalog.Keep(ctx, u, time.Now().Add(time.Second))); err != nil {
		t.Fatal(err)
	}
	if kept, left := m.kept(); !kept[u.ID] || left != 1 {
		t.Errorf("kept are %v, and %d files", kept, left)
	}
}
