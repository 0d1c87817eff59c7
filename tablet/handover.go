package tablet

import (
	"bytes"
	"context"
	"errors"

	"github.com/steledb/stele/tablet/ikey"
)

// handOverBytes is how much of a file is read into the cache at once, in the place of what it replaces. 1 MiB: while it is read, for
// a millisecond, reads of these rows find neither.
const handOverBytes = 1 << 20

// handOver has added read in the place of old files of a group, which it stands for in the metadata. If the cache has no room for
// the blocks of both, they take turns: row by row the cache gives up what it has of the old files and reads what is as hot of the new one,
// and the tablet is read from there for the rows so far. When it returns added alone is read, also if ctx has ended. mergeMu is held.
func (t *Tablet) handOver(ctx context.Context, name string, old []*file, added *file) {
	added.refs.Add(1)
	defer added.release()
	now, g := old, t.newGait(ctx)
	read := func(files []*file) (served bool) {
		served = t.install(func(v *view) { v.replaceAll(name, now, files) })
		now = files
		return served
	}
	begin := func(lower, upper []byte) error {
		for _, f := range old {
			if err := f.dropCachedIn(lower, upper); err != nil {
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
		served := read(parts)
		for _, p := range parts {
			p.release()
		}
		if !served || t.server.behind() {
			return errNoHandOver
		}
		g.step(bytes)
		return nil
	}
	if err := added.table.Warm(ctx, added.warm, handOverBytes, begin, end); err != nil && !errors.Is(err, errNoHandOver) && ctx.Err() == nil {
		t.server.log.Warn("a file that a compaction wrote was not read into the cache", "tablet", t.id, "blob", added.meta.Handle.ID.String(), "error", err)
	}
	added.warm = nil
	if !read([]*file{added}) && t.isDropped() {
		added.deleteLater() // the metadata that named it is gone
	}
}

// errNoHandOver ends a hand-over that nobody gains from: the tablet is gone, or there are too many files.
var errNoHandOver = errors.New("no use to go on")

// dropCachedIn removes what the cache has of the file's rows between two keys. Another tablet may have the others.
func (f *file) dropCachedIn(lower, upper []byte) error {
	lo, hi := rowBounds(f.meta.Start, f.meta.End)
	if lo != nil && (lower == nil || bytes.Compare(lower, lo) < 0) {
		lower = lo
	}
	if hi != nil && (upper == nil || bytes.Compare(upper, hi) > 0) {
		upper = hi
	}
	return f.table.DropCachedIn(lower, upper)
}

// partsAt returns added for the rows up to one, and the old files for those after it, each held once.
func partsAt(old []*file, added *file, row []byte) (parts []*file, err error) {
	if row = bytes.Clone(row); len(row) == 0 {
		return nil, ikey.ErrBadKey
	}
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
