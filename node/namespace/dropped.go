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
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// A dropped table is kept for a while as a table with another name, which no request can use: its file is renamed from NAME to ~ID.TIME.NAME in
// the directory of tables, and back when it is restored. Each is one write, so the table has one file at each moment (NS4). Its tablets are assigned,
// recovered and compacted like others.

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

// Dropped lists the dropped tables that are kept, by id.
func (c *Catalog) Dropped(ctx context.Context) (map[uint64]DroppedTable, error) {
	files, err := c.Meta.List(ctx, TablesDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	kept := map[uint64]DroppedTable{}
	for i := range files {
		if d, is := parseDropped(path.Base(files[i].Path)); is {
			d.Generation = files[i].Generation
			kept[d.ID] = d
		}
	}
	return kept, nil
}

// ReadDropped returns the schema of a dropped table, with the name that it had. The error is api.ErrNoTable or that of the lock
// service.
func (c *Catalog) ReadDropped(ctx context.Context, d *DroppedTable) (*table.Schema, error) {
	f, err := c.Meta.Get(ctx, TablePath(d.File))
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, noDropped(d)
	}
	if err != nil {
		return nil, err
	}
	return decodeSchema(d.Name, f.Data)
}

// Keep drops a table whose file is at generation gen, and keeps it. Errors: those of RenameTable.
func (c *Catalog) Keep(ctx context.Context, s *table.Schema, gen uint64, now time.Time) error {
	return c.move(ctx, s.Name, gen, droppedFile(s.ID, now, s.Name), encodeTable(s, nil))
}

// Restore makes a dropped table an ordinary one again, with the schema s and the name in it. Errors: those of RenameTable.
func (c *Catalog) Restore(ctx context.Context, d *DroppedTable, s *table.Schema) error {
	return c.move(ctx, d.File, d.Generation, s.Name, encodeTable(s, nil))
}

// Purge removes the file of a dropped table: it is dropped for good. The error is api.ErrNoTable if it is gone already, or was restored, or that of the
// lock service.
func (c *Catalog) Purge(ctx context.Context, d *DroppedTable) error {
	err := c.Remove(ctx, TablePath(d.File), d.Generation)
	if errors.Is(err, metaapi.ErrNotFound) {
		return noDropped(d)
	}
	return err
}

func noDropped(d *DroppedTable) error {
	return fmt.Errorf("dropped table %q with id %d: %w", d.Name, d.ID, api.ErrNoTable)
}

// listings bounds the attempts to list tables while some are dropped or kept.
const listings = 100

// idsOf returns the names of files of tables by the ids of the tables, as they were at one moment. read returns the id of a file that is not of a
// dropped table; its error is api.ErrNoTable if the file is gone, also if another one has its name.
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
		// It was dropped or renamed after the directory was read, and may have another file now.
	}
	return nil, fmt.Errorf("%w: tables are dropped and renamed faster than they can be listed", api.ErrUnavailable)
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
