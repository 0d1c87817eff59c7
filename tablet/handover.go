package tablet

import (
	"bytes"
	"context"

	"github.com/steledb/stele/tablet/ikey"
)

// handOverBytes is how much of a file is read into the cache at once, in the place of what it replaces. 256 KiB: while it is read, for
// some 0.3 ms, reads of these rows find neither.
const handOverBytes = 256 << 10

// handOver has added read in the place of old files of a group, which it stands for in the metadata. If the cache has no room for
// the blocks of both, they take turns: row by row the cache gives up what it has of the old files and reads what is as hot of the new one,
// and the tablet is read from there for the rows so far. When it returns added alone is read, also if ctx has ended. mergeMu is held.
func (t *Tablet) handOver(ctx context.Context, name string, old []*file, added *file) {
	added.refs.Add(1)
	defer added.release()
	now, g := old, t.server.newGait()
	read := func(files []*file) {
		t.install(func(v *view) { v.replaceAll(name, now, files) })
		now = files
	}
	begin := func(lower, upper []byte) error {
		for _, f := range old {
			if err := f.table.DropCachedIn(lower, upper); err != nil {
				return err
			}
		}
		return nil
	}
	end := func(last []byte, bytes int) error {
		parts, err := partsAt(old, added, ikey.RowPrefix(last))
		if err != nil {
			return err
		}
		read(parts)
		for _, p := range parts {
			p.release()
		}
		g.step(bytes)
		return nil
	}
	if err := added.table.Warm(ctx, added.warm, handOverBytes, begin, end); err != nil && ctx.Err() == nil {
		t.server.log.Warn("a file that a compaction wrote was not read into the cache", "tablet", t.id, "blob", added.meta.Handle.ID.String(), "error", err)
	}
	read([]*file{added})
}

// partsAt returns added for the rows up to one, and the old files for those after it, each held once.
func partsAt(old []*file, added *file, row []byte) (parts []*file, err error) {
	row = bytes.Clone(row)
	add := func(f *file, start, end []byte) {
		p, partErr := f.part(start, end)
		if partErr != nil {
			err = partErr
		} else if p != nil {
			parts = append(parts, p)
		}
	}
	for _, f := range old {
		add(f, row, nil)
	}
	add(added, nil, row)
	if err != nil {
		for _, p := range parts {
			p.release()
		}
		return nil, err
	}
	return parts, nil
}

// part returns what f has of the rows start < row <= end, held once, or nil if that is nothing. f is held as long as it is.
func (f *file) part(start, end []byte) (*file, error) {
	m := f.meta
	if !m.within(start, end) {
		return nil, nil
	}
	p := &file{
		meta: m, table: f.table, opened: f.opened, whole: f, inner: true, columnFilter: f.columnFilter, largest: f.largest,
		families: f.families, familiesKnown: f.familiesKnown, weights: f.weights, weightsKnown: f.weightsKnown,
	}
	lo, hi := rowBounds(m.Start, m.End)
	var err error
	if p.bytes, err = f.table.ApproxBytes(lo, hi); err != nil {
		return nil, err
	}
	f.refs.Add(1)
	p.refs.Store(1)
	return p, nil
}
