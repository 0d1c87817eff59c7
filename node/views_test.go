package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// viewOf has the rows with the prefixes a/ and c/, all columns of f, and of g the column n and those with the prefix p.
func viewOf(name string) table.Change {
	v := table.NewView(name, [][]byte{[]byte("c/"), []byte("a/")}, table.ViewFamily{Name: "f", Prefixes: [][]byte{{}}},
		table.ViewFamily{Name: "g", Qualifiers: [][]byte{[]byte("n")}, Prefixes: [][]byte{[]byte("p")}})
	return table.Change{Op: table.ChangeAddView, View: &table.ViewChange{View: *v}}
}

// fillViewed creates the table t of two tablets, with the view v.
func fillViewed(t *testing.T, ctx context.Context, c *client.Client) {
	t.Helper()
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"b/5"}, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}, table.FamilySpec{Name: "h"}); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"a/", "b/", "c/", "d/"} {
		for i := range 10 {
			m := client.NewRowMutation(fmt.Sprintf("%s%d", prefix, i))
			for _, column := range []string{"f:q", "g:n", "g:p1", "g:secret", "h:secret"} {
				m.Set(column, []byte("12345678"))
			}
			if err := c.Table("t").Apply(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Tables().Alter(ctx, "t", viewOf("v"), table.Change{Op: table.ChangeAddView, View: &table.ViewChange{View: *table.NewView("other", [][]byte{{}})}}); err != nil {
		t.Fatal(err)
	}
}

// inView returns an error unless the row is in the view v, with its columns only.
func inView(r *table.Row) error {
	if !strings.HasPrefix(string(r.Key), "a/") && !strings.HasPrefix(string(r.Key), "c/") || len(r.Cells) != 3 {
		return fmt.Errorf("row %q with %d cells", r.Key, len(r.Cells))
	}
	for _, c := range r.Cells {
		if string(c.Qualifier) == "secret" {
			return fmt.Errorf("row %q has column %s:secret", r.Key, c.Family)
		}
	}
	return nil
}

// scannedView returns the keys of a scan, which are in the view.
func scannedView(t *testing.T, ctx context.Context, tbl *client.Table, options ...client.ScanOption) (keys []string) {
	t.Helper()
	s := tbl.Scan(ctx, options...)
	defer s.Close()
	for s.Next() {
		keys = append(keys, string(s.Row().Key))
		if err := inView(s.Row()); err != nil {
			t.Error(err)
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return keys
}

// readsView checks all reads by the view v.
func readsView(t *testing.T, ctx context.Context, v *client.Table) {
	t.Helper()
	keys := scannedView(t, ctx, v)
	if len(keys) != 20 || keys[0] != "a/0" || keys[19] != "c/9" {
		t.Errorf("a scan: %q", keys)
	}
	back := scannedView(t, ctx, v, client.Reversed())
	if slices.Reverse(back); !slices.Equal(keys, back) {
		t.Errorf("a scan backwards: %q", back)
	}
	if keys := scannedView(t, ctx, v, client.Start("a/8"), client.End("c/2")); !slices.Equal(keys, []string{"a/8", "a/9", "c/0", "c/1"}) {
		t.Errorf("a scan of a range: %q", keys)
	}
	if keys := scannedView(t, ctx, v, client.RowKeys("a/1", "b/1", "c/1", "d/1"), client.RowRange("d/", "e")); !slices.Equal(keys, []string{"a/1", "c/1"}) {
		t.Errorf("a scan of keys: %q", keys)
	}
	got, err := v.GetAll(ctx, []string{"a/1", "b/1", "c/1"})
	if err != nil || inView(got[0]) != nil || got[1] != nil || inView(got[2]) != nil {
		t.Errorf("several rows: %v, %v", got, err)
	}
	for _, key := range []string{"b/1", "d/9"} {
		if r, err := v.Get(ctx, key); r != nil || err != nil {
			t.Errorf("row %s: %v, %v", key, r, err)
		}
	}
	for _, filter := range []table.Filter{table.QualifierRegex("secret"), table.FamilyRegex("h"), table.ColumnRange{Family: "g", Qualifiers: table.ByteRange{Start: table.Closed([]byte("secret")), End: table.Closed([]byte("secret"))}}} {
		if r, err := v.Get(ctx, "a/1", client.Filter(filter)); r != nil || err != nil {
			t.Errorf("by a filter of hidden columns: %v, %v", r, err)
		}
		if matched, err := v.CheckAndMutate(ctx, "a/1", filter, nil, nil); matched || err != nil {
			t.Errorf("a predicate of hidden columns: %v, %v", matched, err)
		}
	}
	if matched, err := v.CheckAndMutate(ctx, "b/1", nil, nil, nil); matched || err != nil {
		t.Errorf("a predicate of a hidden row: %v, %v", matched, err)
	}
	samples, err := v.SampleRowKeys(ctx)
	if err != nil || len(samples) != 1 || string(samples[0].Key) != "c0" || samples[0].Offset != 0 {
		t.Errorf("samples: %v, %v", samples, err)
	}
}

// writesOf are writes of all kinds of a row.
func writesOf(ctx context.Context, tbl *client.Table, row, column string) map[string]error {
	set := func() *client.RowMutation { return client.NewRowMutation(row).Set(column, []byte("x")) }
	_, checked := tbl.CheckAndMutate(ctx, row, nil, set(), set())
	_, added := tbl.ReadModifyWrite(ctx, row, client.AppendRule(column, []byte("x")))
	return map[string]error{
		"set": tbl.Apply(ctx, set()), "delete": tbl.Apply(ctx, client.NewRowMutation(row).Delete(column)), "batch": tbl.ApplyAll(ctx, []*client.RowMutation{set()}),
		"check": checked, "append": added,
	}
}

// hostileWrites checks that nothing outside of the view v can be changed by it.
func hostileWrites(t *testing.T, ctx context.Context, v *client.Table) {
	t.Helper()
	for _, at := range [][2]string{{"b/1", "f:q"}, {"a/1", "g:secret"}, {"d/1", "g:n"}, {"e", "f:q"}, {"a/1", "h:secret"}, {"a/1", "absent:q"}} {
		for what, err := range writesOf(ctx, v, at[0], at[1]) {
			var batch *client.BatchError
			if errors.As(err, &batch) {
				err = batch.Errs[0]
			}
			if !errors.Is(err, client.ErrPermission) {
				t.Errorf("%s of %s in row %s: %v", what, at[1], at[0], err)
			}
		}
	}
	for what, m := range map[string]*client.RowMutation{
		"row": client.NewRowMutation("a/1").DeleteRow(), "family": client.NewRowMutation("a/1").DeleteFamily("g"), "row outside": client.NewRowMutation("b/1").DeleteRow(),
		"part of it": client.NewRowMutation("a/1").Set("f:q", nil).Set("g:secret", nil),
	} {
		if err := v.Apply(ctx, m); !errors.Is(err, client.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range writesOf(ctx, v, "a/new", "g:p2") {
		if err != nil {
			t.Errorf("%s within the view: %v", what, err)
		}
	}
	if err := v.Apply(ctx, client.NewRowMutation("a/new").DeleteFamily("f").Delete("g:p2")); err != nil {
		t.Error(err)
	}
}

// unchanged checks that rows outside of the view, and hidden columns, are as they were.
func unchanged(t *testing.T, ctx context.Context, c *client.Client) {
	t.Helper()
	s, rows := c.Table("t").Scan(ctx), 0
	defer s.Close()
	for ; s.Next(); rows++ {
		if len(s.Row().Cells) != 5 {
			t.Errorf("row %q has %d cells", s.Row().Key, len(s.Row().Cells))
		}
		for _, cell := range s.Row().Cells {
			if string(cell.Value) != "12345678" {
				t.Errorf("row %q: %s:%s is %q", s.Row().Key, cell.Family, cell.Qualifier, cell.Value)
			}
		}
	}
	if s.Err() != nil || rows != 40 {
		t.Errorf("%d rows, %v", rows, s.Err())
	}
}

// TestViews: a request by a view shows and changes nothing outside of it, also if its sender has all rights.
func TestViews(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	fillViewed(t, ctx, c)
	v := f.client(1).Table("t").View("v")
	readsView(t, ctx, v)
	hostileWrites(t, ctx, v)
	unchanged(t, ctx, c)
	if _, err := c.Table("t").View("absent").Get(ctx, "a/1"); !errors.Is(err, table.ErrNoView) {
		t.Errorf("by a view that does not exist: %v", err)
	}
	if _, err := c.Table("METADATA").View("v").Get(ctx, "a/1"); !errors.Is(err, table.ErrNoView) {
		t.Errorf("METADATA: %v", err)
	}
	if _, err := c.Tables().DropFamily(ctx, "t", "g"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeAdd, Family: table.FamilySpec{Name: "g"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("a/1").Set("g:n", []byte("of another family"))); err != nil {
		t.Fatal(err)
	}
	if r, err := v.Get(ctx, "a/1"); err != nil || len(r.Cells) != 1 || r.Cells[0].Family != "f" {
		t.Errorf("a family that was created after the view: %v, %v", r, err)
	}
	if _, err := c.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeDropView, View: &table.ViewChange{View: table.View{Name: "v"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(ctx, "a/1"); !errors.Is(err, table.ErrNoView) {
		t.Errorf("by a view that was dropped: %v", err)
	}
}

// TestViewsWithoutFamilies: a view that never had a family, or lost its last one, has nothing to delete for any user, and the deletion of a row harms
// no server.
func TestViewsWithoutFamilies(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	good(admin.Tables().Create(ctx, "u", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "h"}))
	cred := f.user(admin, "ann")
	for _, v := range []*table.View{table.NewView("never", [][]byte{[]byte("a/")}), table.NewView("lost", [][]byte{[]byte("a/")}, table.ViewFamily{Name: "h", Prefixes: [][]byte{{}}})} {
		good(admin.Tables().Alter(ctx, "u", table.Change{Op: table.ChangeAddView, View: &table.ViewChange{View: *v}}))
		if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "write", Table: "u", View: v.Name}); err != nil {
			t.Fatal(err)
		}
	}
	good(admin.Tables().DropFamily(ctx, "u", "h"))
	if err := admin.Table("u").Apply(ctx, client.NewRowMutation("a/1").Set("f:q", nil)); err != nil {
		t.Fatal(err)
	}
	for user, c := range map[string]*client.Client{"ann": f.clientAs(0, client.Config{Credential: cred}), "the administrator": admin} {
		for _, view := range []string{"never", "lost"} {
			if err := c.Table("u").View(view).Apply(ctx, client.NewRowMutation("a/1").DeleteRow()); !errors.Is(err, client.ErrPermission) {
				t.Errorf("%s deletes a row by the view %s: %v", user, view, err)
			}
		}
	}
	if r, err := admin.Table("u").Get(ctx, "a/1"); err != nil || r == nil || len(r.Cells) != 1 {
		t.Errorf("the row is %v, %v", r, err)
	}
}

// TestViewRights: a user with rights on a view alone has them within it, and nothing else of the table.
func TestViewRights(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	fillViewed(t, ctx, admin)
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	tbl := ann.Table("t")
	if _, err := tbl.View("v").Get(ctx, "a/1"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("without a right: %v", err)
	}
	grant := client.Grant{Principal: "ann", Table: "t", View: "v", Rights: "read"}
	if err := admin.Grants().Add(ctx, grant); err != nil {
		t.Fatal(err)
	}
	readsView(t, ctx, tbl.View("v"))
	for what, err := range writesOf(ctx, tbl.View("v"), "a/1", "f:q") {
		if _, batch := errors.AsType[*client.BatchError](err); !batch && !errors.Is(err, client.ErrPermission) {
			t.Errorf("%s by a reader: %v", what, err)
		}
	}
	onlyView(t, ctx, ann)
	writer := grant
	writer.Rights = "write"
	if err := admin.Grants().Add(ctx, writer); err != nil {
		t.Fatal(err)
	}
	readsView(t, ctx, tbl.View("v"))
	hostileWrites(t, ctx, tbl.View("v"))
	onlyView(t, ctx, ann)
	unchanged(t, ctx, admin)
	for _, bad := range []client.Grant{{Table: "t", View: "v", Rights: "admin"}, {Table: "t", View: "v", Family: "f", Rights: "read"}, {View: "v", Rights: "read"}, {Table: "t", View: "absent", Rights: "read"}} {
		bad.Principal = "ann"
		if err := admin.Grants().Add(ctx, bad); err == nil {
			t.Errorf("granted: %+v", bad)
		}
	}
	if all, err := admin.Grants().List(ctx, "t", "ann"); err != nil || len(all) != 1 || all[0].View != "v" || all[0].Rights != "read,write" || all[0].Family != "" {
		t.Errorf("grants: %+v, %v", all, err)
	}
	if err := admin.Grants().Revoke(ctx, grant); err != nil {
		t.Fatal(err)
	}
	if _, err := tbl.View("v").Get(ctx, "a/1"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("as a writer: %v", err)
	}
	if _, err := admin.Tables().Alter(ctx, "t", table.Change{Op: table.ChangeDropView, View: &table.ViewChange{View: table.View{Name: "v"}}}, viewOf("v")); err != nil {
		t.Fatal(err)
	}
	if err := tbl.View("v").Apply(ctx, client.NewRowMutation("a/1").Set("f:q", nil)); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("by a grant on a view that was dropped: %v", err)
	}
}

// onlyView checks that a user with rights on the view v has none on the table, nor on another view.
func onlyView(t *testing.T, ctx context.Context, c *client.Client) {
	t.Helper()
	tbl := c.Table("t")
	read := func(tbl *client.Table) error {
		_, err := tbl.Get(ctx, "a/1")
		return err
	}
	s := tbl.Scan(ctx)
	s.Next()
	scan := s.Err()
	s.Close()
	_, sample := tbl.SampleRowKeys(ctx)
	_, heat := c.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: "t"})
	for what, err := range map[string]error{"read": read(tbl), "scan": scan, "sample": sample, "heat": heat} {
		if !errors.Is(err, client.ErrPermission) {
			t.Errorf("%s of the table: %v", what, err)
		}
	}
	if err := read(tbl.View("other")); !errors.Is(err, table.ErrNoView) {
		t.Errorf("of another view: %v", err)
	}
	for what, err := range writesOf(ctx, tbl, "a/1", "f:q") {
		if err == nil {
			t.Errorf("%s in the table", what)
		}
	}
	if err := tbl.Apply(ctx, client.NewRowMutation("a/1").DeleteRow()); err == nil {
		t.Error("deleted a row of the table")
	}
	info, err := c.Tables().Describe(ctx, "t")
	if err != nil || len(info.Schema.Families) != 0 || len(info.Schema.Views) != 1 || info.Schema.Views[0].Name != "v" || !info.SizesHidden {
		t.Errorf("described: %+v, %v", info, err)
	}
	if _, err := c.Tables().Alter(ctx, "t", viewOf("mine")); !errors.Is(err, client.ErrPermission) {
		t.Errorf("created a view: %v", err)
	}
	if hot, err := c.Tables().Hot(ctx, &client.HotTabletsRequest{}); err != nil || len(hot.Tablets) != 0 {
		t.Errorf("hot tablets: %v, %v", hot, err)
	}
	if changes, err := tbl.View("v").Changes(client.ChangesFrom{}); err == nil {
		if _, err := changes.Next(ctx); err == nil {
			t.Error("read changes")
		}
	}
}
