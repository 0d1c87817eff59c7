package namespace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// A dropped table is kept for a while as a table with another name, which no request can use: its file has moved from NAME to ~ID.TIME.NAME in
// the directory of tables. Its tablets are assigned, recovered and compacted like others. While the file moves, there are two, so that no reader of
// the directory finds none; then the table is not dropped.

// DroppedTable is a dropped table that is kept.
type DroppedTable struct {
	ID   uint64
	Name string // that it had
	At   time.Time
	// File is the name of its file, and that under which tablet servers serve it: see table.IsDropped.
	File string
	// Generation is that of the file.
	Generation uint64
}

// droppedFile returns the name of the file of a dropped table.
func droppedFile(id uint64, at time.Time, name string) string {
	return fmt.Sprintf("%s%d.%d.%s", table.DroppedPrefix, id, at.UnixMilli(), name)
}

// parseDropped parses the name of a file of a dropped table.
func parseDropped(file string) (DroppedTable, bool) {
	rest, is := strings.CutPrefix(file, table.DroppedPrefix)
	id, rest, _ := strings.Cut(rest, ".")
	at, name, _ := strings.Cut(rest, ".")
	d := DroppedTable{Name: name, File: file}
	var idErr, atErr error
	d.ID, idErr = strconv.ParseUint(id, 10, 64)
	ms, atErr := strconv.ParseInt(at, 10, 64)
	d.At = time.UnixMilli(ms)
	return d, is && idErr == nil && atErr == nil && name != ""
}

// Dropped lists the dropped tables that are kept, by id. left are files that are not needed: of a table that is not dropped or not dropped any more,
// and earlier ones of a dropped table.
func (c *Catalog) Dropped(ctx context.Context) (kept map[uint64]DroppedTable, left []DroppedTable, err error) {
	kept = map[uint64]DroppedTable{}
	live := map[uint64]metaapi.Stat{}
	var all []DroppedTable
	_, err = idsOf(func() ([]metaapi.Stat, error) {
		files, err := c.Meta.List(ctx, TablesDir)
		clear(live)
		all = all[:0]
		for i := range files {
			if d, is := parseDropped(path.Base(files[i].Path)); is {
				d.Generation = files[i].Generation
				all = append(all, d)
			}
		}
		return files, err
	}, func(at *metaapi.Stat) (uint64, error) {
		s, _, err := c.Schema(ctx, path.Base(at.Path))
		if err != nil {
			return 0, err
		}
		live[s.ID] = *at
		return s.ID, nil
	})
	for _, d := range all { // of one table, the last file is the newest
		t, is := live[d.ID]
		earlier, double := kept[d.ID]
		switch {
		case !is:
			kept[d.ID] = d
			if double {
				left = append(left, earlier)
			}
		case t.Generation > d.Generation || time.Since(d.At) > leftAge:
			left = append(left, d)
		}
	}
	return kept, left, err
}

// leftAge is the age from which the file of a drop that did not end is not needed any more. Until then the drop may still go on. A file that is older
// than the last change of its table is not needed at once: the table is not dropped any more, or the drop fails.
const leftAge = 24 * time.Hour

// ReadDropped returns the schema of a dropped table, with the name that it had. The error is api.ErrNoTable or that of the lock
// service.
func (c *Catalog) ReadDropped(ctx context.Context, d *DroppedTable) (*table.Schema, error) {
	f, err := c.Meta.Get(ctx, TablePath(d.File))
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, fmt.Errorf("dropped table %q with id %d: %w", d.Name, d.ID, api.ErrNoTable)
	}
	if err != nil {
		return nil, err
	}
	return decodeSchema(d.Name, f.Data)
}

// Keep creates the file of a table that is about to be dropped.
func (c *Catalog) Keep(ctx context.Context, s *table.Schema, now time.Time) error {
	e := wire.GetEncoder()
	defer e.Release()
	table.AppendSchema(e, s)
	_, err := c.Set(ctx, TablePath(droppedFile(s.ID, now, s.Name)), append([]byte(nil), e.Bytes()...), 0)
	if errors.Is(err, metaapi.ErrGeneration) {
		return nil // it was created in this millisecond
	}
	return err
}

// RemoveKept removes the files of a table by which it is kept after it was dropped, and returns their number.
func (c *Catalog) RemoveKept(ctx context.Context, id uint64) (n int, err error) {
	files, err := c.List(ctx, TablesDir)
	for _, f := range files {
		if d, is := parseDropped(f); !is || d.ID != id {
			continue
		}
		err := c.Remove(ctx, TablePath(f), metaapi.AnyGeneration)
		if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
			return n, err
		}
		if err == nil {
			n++
		}
	}
	return n, err
}

// listings bounds the attempts to list tables while some are dropped or kept.
const listings = 100

// idsOf returns the names of files of tables by the ids of the tables, as they were at one moment: of a table that has two, that under which it
// is not dropped. read returns the id of a file that is not of a dropped table; its error is api.ErrNoTable if the file is gone.
//
// The directory is read at once, and a table always has a file in it. So a table that is missing in the result was dropped for good.
func idsOf(list func() ([]metaapi.Stat, error), read func(at *metaapi.Stat) (uint64, error)) (map[uint64]string, error) {
	for range listings {
		files, err := list()
		if errors.Is(err, metaapi.ErrNotFound) {
			return map[uint64]string{}, nil
		}
		if err != nil {
			return nil, err
		}
		tables, err := idsIn(files, read)
		if !errors.Is(err, api.ErrNoTable) {
			return tables, err
		}
		// It was dropped after the directory was read, and may have another file now.
	}
	return nil, fmt.Errorf("%w: tables are dropped faster than they can be listed", api.ErrUnavailable)
}

func idsIn(files []metaapi.Stat, read func(at *metaapi.Stat) (uint64, error)) (map[uint64]string, error) {
	tables := make(map[uint64]string, len(files))
	for i := range files {
		if d, is := parseDropped(path.Base(files[i].Path)); is {
			tables[d.ID] = d.File
		}
	}
	for i := range files {
		name := path.Base(files[i].Path)
		if table.IsDropped(name) {
			continue
		}
		id, err := read(&files[i])
		if err != nil {
			return nil, err
		}
		tables[id] = name
	}
	return tables, nil
}
