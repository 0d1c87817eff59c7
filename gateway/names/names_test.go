package names

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steledb/stele/table"
)

// id generates ids that are accepted in names.
var id = rapid.StringMatching(`[^/]{1,16}`).Filter(func(s string) bool { return len(s) <= partBytesMax })

// TestRoundTrip: parsing the String of a name returns the name (GN1).
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := Instance{id.Draw(t, "project"), id.Draw(t, "instance")}
		if got, err := ParseInstance(i.String()); err != nil || got != i {
			t.Fatalf("%q: %v, %v", i, got, err)
		}
		name := i.Table(id.Draw(t, "table"))
		if got, err := ParseTable(name.String()); err != nil || got != name {
			t.Fatalf("%q: %v, %v", name, got, err)
		}
		view := name.View(id.Draw(t, "view"))
		if got, err := ParseView(view.String()); err != nil || got != view {
			t.Fatalf("%q: %v, %v", view, got, err)
		}
		for _, of := range []View{view, {Table: name}} {
			text := of.String()
			if of.ID == "" {
				text = name.String()
			}
			if got, err := ParseTableOrView(text); err != nil || got != of || IsBackup(text) {
				t.Fatalf("%q: %v, %v", text, got, err)
			}
		}
		if got, c, err := ParseCluster(i.Cluster(name.ID)); err != nil || got != i || c != name.ID {
			t.Fatalf("%q: %v, %q, %v", i.Cluster(name.ID), got, c, err)
		}
		backup := Backup{i, name.ID, id.Draw(t, "backup")}
		if got, err := ParseBackup(backup.String()); err != nil || got != backup || !IsBackup(backup.String()) {
			t.Fatalf("%q: %v, %v", backup, got, err)
		}
		if got, a, err := ParseAppProfile(i.AppProfile(name.ID)); err != nil || got != i || a != name.ID {
			t.Fatalf("%q: %v, %q, %v", i.AppProfile(name.ID), got, a, err)
		}
	})
}

func TestMalformed(t *testing.T) {
	long := strings.Repeat("x", partBytesMax+1)
	for _, name := range []string{
		"", "/", "t", "tables/t", "projects/p/instances/i", "projects/p/instances/i/", "projects/p/instances/i/tables",
		"projects/p/instances/i/tables/", "projects//instances/i/tables/t", "projects/p/instances//tables/t",
		"projects/p/instances/i/tables/t/", "projects/p/instances/i/tables/t/x", "Projects/p/instances/i/tables/t",
		"/projects/p/instances/i/tables/t", "projects/p/instances/i/clusters/t", "projects/p/instances/i/tables/" + long,
		"projects/" + long + "/instances/i/tables/t", "projects/\xff/instances/i/tables/t",
	} {
		var bad *Error
		if got, err := ParseTable(name); !errors.Is(err, ErrBadName) || !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("%q: %v, %v, want ErrBadName", name, got, err)
		}
	}
	for _, name := range []string{
		"", "v", "projects/p/instances/i/tables/t", "projects/p/instances/i/tables/t/authorizedViews", "projects/p/instances/i/tables/t/authorizedViews/",
		"projects/p/instances/i/tables//authorizedViews/v", "projects/p/instances/i/tables/t/authorizedViews/v/x", "projects/p/instances/i/tables/t/views/v",
		"projects/p/instances/i/tables/t/authorizedViews/" + long,
	} {
		var bad *Error
		if got, err := ParseView(name); !errors.Is(err, ErrBadName) || !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("%q: %v, %v, want ErrBadName", name, got, err)
		}
		if got, err := ParseTableOrView(name); !errors.Is(err, ErrBadName) && got.ID != "" {
			t.Errorf("%q: %v, %v, want ErrBadName or a table", name, got, err)
		}
	}
	for _, name := range []string{
		"", "b", "projects/p/instances/i/clusters/c", "projects/p/instances/i/clusters/c/backups", "projects/p/instances/i/clusters/c/backups/",
		"projects/p/instances/i/clusters//backups/b", "projects/p/instances/i/clusters/c/backups/b/x", "projects/p/instances/i/tables/c/backups/b",
		"projects/p/instances/i/clusters/c/backups/" + long,
	} {
		var bad *Error
		if got, err := ParseBackup(name); !errors.Is(err, ErrBadName) || !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("%q: %v, %v, want ErrBadName", name, got, err)
		}
	}
	for _, name := range []string{"", "p", "projects/", "projects/p/instances/i"} {
		if got, err := ParseProject(name); !errors.Is(err, ErrBadName) {
			t.Errorf("%q: %v, %v, want ErrBadName", name, got, err)
		}
	}
	if got, err := ParseProject("projects/p"); err != nil || got != "p" {
		t.Errorf("projects/p: %q, %v", got, err)
	}
}

func TestTableIDs(t *testing.T) {
	for _, c := range []struct {
		id           string
		wide, strict error
	}{
		{"t", nil, nil},
		{"_t-1.x", nil, nil},
		{"-t", nil, ErrBadName},
		{".t", nil, ErrBadName},
		{strings.Repeat("t", 50), nil, nil},
		{strings.Repeat("t", 51), nil, ErrBadName},
		{strings.Repeat("t", 64), nil, ErrBadName},
		{strings.Repeat("t", 65), table.ErrLimit, table.ErrLimit},
		{"", table.ErrBadName, table.ErrBadName},
		{"..", table.ErrBadName, table.ErrBadName},
		{"a b", table.ErrBadName, table.ErrBadName},
		{"a/b", table.ErrBadName, table.ErrBadName},
	} {
		if err := (Limits{}).CheckTableID(c.id); !errors.Is(err, c.wide) || (err == nil) != (c.wide == nil) {
			t.Errorf("%q: %v, want %v", c.id, err, c.wide)
		}
		if err := (Limits{Strict: true}).CheckTableID(c.id); !errors.Is(err, c.strict) || (err == nil) != (c.strict == nil) {
			t.Errorf("%q with strict limits: %v, want %v", c.id, err, c.strict)
		}
	}
}
