package tables

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// kept returns the ids of dropped tables.
func (m *master) kept() map[uint64]bool {
	m.t.Helper()
	kept, err := m.Node.Catalog.Dropped(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	ids := map[uint64]bool{}
	for id := range kept {
		ids[id] = true
	}
	return ids
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
	if ids := m.kept(); !ids[s.ID] || len(ids) != 1 {
		t.Errorf("kept are %v", ids)
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
	if ids := m.kept(); len(ids) != 0 {
		t.Errorf("kept are %v", ids)
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
	if kept := m.kept(); !kept[ids[1]] || len(kept) != 1 {
		t.Errorf("kept are %v", kept)
	}
	now := time.Now()
	if err := m.PurgeExpiredNow(t.Context(), now.Add(KeptFor-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if kept := m.kept(); len(kept) != 1 {
		t.Error("a table is purged before its time")
	}
	if err := m.PurgeExpiredNow(t.Context(), now.Add(KeptFor+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if kept := m.kept(); len(kept) != 0 || len(m.left(ids[1])) != 0 {
		t.Errorf("kept are %v after their time", kept)
	}
}

// TestPurgeAfterUndrop: a purge of a table that was restored meanwhile does nothing to it.
func TestPurgeAfterUndrop(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	s, err := m.create(ann, "t")
	if err != nil {
		t.Fatal(err)
	}
	files := len(m.left(s.ID))
	if err := m.port.Call(t, ann, api.MethodDropTable, authztest.Values("t")); err != nil {
		t.Fatal(err)
	}
	kept, err := m.Node.Catalog.Dropped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.port.Call(t, ann, api.MethodUndropTable, authztest.Values("t")); err != nil {
		t.Fatal(err)
	}
	d := kept[s.ID]
	if err := m.purge(t.Context(), &d); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("purged: %v", err)
	}
	if now, _, err := m.Node.Catalog.Schema(t.Context(), "t"); err != nil || now.ID != s.ID || len(m.left(s.ID)) != files {
		t.Errorf("the table: %+v, %v, with %q", now, err, m.left(s.ID))
	}
}

// splitPointsRemoved is a lock service that loses the answer to the creation of a table, after which the master removes the table's split points.
type splitPointsRemoved struct {
	namespace.Files
	c    *namespace.Catalog
	done bool
}

func (f *splitPointsRemoved) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	made, err := f.Files.SetGuarded(ctx, path, data, gen, o)
	if err != nil || f.done || path != namespace.TablePath("t") {
		return made, err
	}
	f.done = true
	s, cut, at, err := namespace.ReadTable(ctx, f.Files, "t")
	if err == nil && cut != nil {
		err = f.c.SaveTable(ctx, s, nil, at)
	}
	return 0, errors.Join(metaapi.ErrOutcomeUnknown, err)
}

// TestCreationOvertaken (TB1): the creator of a table whose file the master changes before the creation has an answer keeps the grant.
func TestCreationOvertaken(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	m.files.Files = &splitPointsRemoved{Files: m.Node.Meta, c: m.Node.Catalog}
	s, err := m.create(ann, "t", "m")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.left(s.ID)) == 0 {
		t.Error("ann has no grant on the new table, and does not own it")
	}
}
