package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/tablet"
)

// TestRowOfAnotherTablet (MD3): a row of METADATA that describes another table's tablet is loaded by no server, changed by no master, left out
// of scans and reported. All other tablets are served, the one above it too, and the row's own once the row is right again.
func TestRowOfAnotherTablet(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, row string) {
		t.Helper()
		must(c.Table(name).Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte(name+row))))
	}
	schema := makeTable(ctx, t, c, "m")
	other, err := c.Tables().Create(ctx, "other", familyF(t))
	must(err)
	for name, row := range map[string]string{"t": "a", "other": "a"} {
		write(name, row)
	}
	again, s := n.Abdicate(ctx), n.tabletServer.Current()
	for _, end := range []string{"m", ""} {
		_, err = s.Unload(ctx, metadata.Key(nil, schema.ID, []byte(end)))
		must(err)
	}
	row, err := n.rows.Get(ctx, schema.ID, []byte("m"))
	must(err)
	others, err := n.rows.Get(ctx, other.ID, nil)
	must(err)
	good := row.Meta
	row.Meta = others.Meta
	must(n.rows.Replace(ctx, row, "overwritten"))

	var mismatch *metadata.MismatchError
	for what, do := range map[string]func() error{
		"get":    func() error { _, err := n.rows.Get(ctx, schema.ID, []byte("m")); return err },
		"load":   func() error { return s.Load(ctx, row.Key(), row.Generation) },
		"unload": func() error { _, err := s.Unload(ctx, row.Key()); return err },
		"merge":  func() error { return s.Merge(ctx, row.Key(), metadata.Key(nil, schema.ID, nil)) },
	} {
		if err := do(); !errors.As(err, &mismatch) || mismatch.Table != other.ID {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := reply.ToAPI(&metadata.FormatError{What: "files:meta", Key: row.Key(), Err: mismatch}); !errors.Is(api.FromRPC(err), api.ErrCorrupt) {
		t.Errorf("the master is answered with %v", err)
	}
	if got := rowsOf(t, n, schema.ID); got != "(end)" {
		t.Errorf("a scan finds the tablets to %s", got)
	}

	again()
	for reported := (*client.UnservedTablets)(nil); ; timing.Sleep(ctx, 20*time.Millisecond) {
		if reported, err = c.Tablets().Unserved(ctx); err == nil && reported.Total == 1 && string(reported.Tablets[0].End) == "m" &&
			strings.Contains(reported.Tablets[0].Error, "describes another tablet") && reported.Tablets[0].Tries == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("reported: %+v, %v", reported, err)
		}
	}
	write("t", "z")
	write("other", "b")
	_, err = c.Tables().Create(ctx, "third", familyF(t))
	must(err)
	write("third", "a")
	must(c.Tables().DropNow(ctx, "third"))
	row.Meta = good
	if err := n.rows.Replace(ctx, row, "restored"); err != nil { // at the generation that it was left at
		t.Fatalf("the row was changed meanwhile: %v", err)
	}
	n.commands.NudgeMaster(ctx)
	write("t", "b")
	if got, err := c.Table("t").Get(ctx, "a"); err != nil || got == nil || string(got.Cells[0].Value) != "ta" {
		t.Errorf("row a: %+v, %v", got, err)
	}
}

// TestDroppedRowOfAnotherTablet: a damaged row of a dropped table does not block the master. It is removed unless it may be the only
// reference to files of an existing table. While it stays, the sweep for garbage fails.
func TestDroppedRowOfAnotherTablet(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stays, err := c.Tables().Create(ctx, "stays", familyF(t))
	must(err)
	own, err := n.rows.Get(ctx, stays.ID, nil)
	must(err)
	described := func(end string) []byte {
		m := metaOf(t, own)
		m.End = []byte(end)
		return tablet.EncodeMeta(m)
	}
	nothing := tablet.EncodeMeta(&tablet.Meta{ID: 7, Table: 7, End: []byte("m")})
	for what, x := range map[string]struct {
		meta    []byte
		removed bool
	}{
		"of a dropped table":                   {nothing, true},
		"that has its own row":                 {own.Meta, true},
		"of a table that is there, and no row": {described("x"), false},
		"that cannot be read":                  {[]byte("x"), true},
	} {
		name := strings.ReplaceAll(what, " ", "_")
		name = strings.ReplaceAll(name, ",", "")
		schema, err := c.Tables().CreateSplit(ctx, name, []string{"m"}, familyF(t))
		must(err)
		again := n.Abdicate(ctx)
		row, err := n.rows.Get(ctx, schema.ID, []byte("m"))
		must(err)
		row.Meta = x.meta
		must(n.rows.Replace(ctx, row, "overwritten"))
		again()
		must(c.Tables().DropNow(ctx, name))
		_, err = c.Tables().Create(ctx, "after_"+name, familyF(t))
		must(err)
		must(c.Table("after_"+name).Apply(ctx, client.NewRowMutation("a").Set("f:q", []byte("v"))))
		for {
			_, err = n.rows.Get(ctx, schema.ID, []byte("m"))
			if _, upper := n.rows.Get(ctx, schema.ID, nil); errors.Is(upper, metarows.ErrNoRow) && errors.Is(err, metarows.ErrNoRow) == x.removed {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("a row that describes a tablet %s: %v", what, err)
			}
			timing.Sleep(ctx, 20*time.Millisecond)
		}
	}
	err = n.roots.Each(ctx, func(blobfs.ID, roots.Use) {})
	if mismatch := (*metadata.MismatchError)(nil); !errors.As(err, &mismatch) {
		t.Errorf("the sweep reads METADATA with %v", err)
	}
}
