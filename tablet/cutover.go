package tablet

import (
	"bytes"
	"context"
	"errors"

	"github.com/steledb/stele/tablet/ikey"
)

// cutoverBytes is the part of a file that is read into the cache at once in place of the old
// blocks. 1 MiB: while it is read, for a millisecond, reads of these rows find neither.
const cutoverBytes = 1 << 20

// cutover replaces old files of a group with added in the tablet's view, after the metadata names
// added in their place. The cache may not have memory for the blocks of both, so the rows move over
// step by step. For each range of rows the cache drops the blocks of the old files and loads the
// equally hot ones of the new file. The view then uses the new file up to there. When cutover
// returns, only added is used, also if ctx has ended. mu is held.
func (c *mergeCompactor) cutover(ctx context.Context, name string, old []*file, added *file) {
	t := c.tablet
	added.refs.Add(1)
	defer added.release()
	now, g := old, c.pacer(ctx)
	read := func(files []*file) (served bool) {
		served = t.views.install(func(v *view) { v.replaceAll(name, now, files) })
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
		if !served || t.server.backlogs.behind() {
			return errCutoverEnded
		}
		g.Step(bytes)
		return nil
	}
	if err := added.table.Warm(ctx, added.warm, cutoverBytes, begin, end); err != nil && !errors.Is(err, errCutoverEnded) && ctx.Err() == nil {
		t.server.log.Warn("compaction output not cached", "tablet", t.id, "blob", added.meta.Handle.ID.String(), "err", err)
	}
	added.warm = nil
	if !read([]*file{added}) && t.views.isDropped() {
		added.deleteLater() // its metadata is gone
	}
}

// errCutoverEnded ends a cutover without benefit: the tablet is gone, or there are too many files.
var errCutoverEnded = errors.New("cutover ended early")

// dropCachedIn removes the cached blocks of the file's rows between two keys. Another tablet may
// have the others.
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

// partsAt returns added for the rows up to row, and the old files for the rows after it, each with
// one reference.
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

// part returns a file limited to f's rows start < row <= end, with one reference, or nil if it has
// none. The part holds a reference on f.
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
