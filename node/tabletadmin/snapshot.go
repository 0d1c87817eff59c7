package tabletadmin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// MethodSnapshot takes a snapshot of a tablet: its key in METADATA. The result is the metadata of the snapshot, in the format of package
// tablet.
const MethodSnapshot = "tablet.snapshot"

// MethodSnapshotChanges is MethodSnapshot with the tablet's change files, which have all changes up to a time: the key in METADATA, the time in µs.
const MethodSnapshotChanges = "tablet.snapshot_changes"

// snapshotsAtOnce is the number of tablets that write out their memtables at a time for a backup.
const snapshotsAtOnce = 16

// snapshotHere takes a snapshot of a tablet of this node.
func (tv *Service) snapshotHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	m, err := tv.TabletsOf(name).Snapshot(ctx, r)
	if err != nil {
		return nil, err
	}
	b := tablet.EncodeMeta(m)
	return func(e *wire.Encoder) { e.Bin(b) }, nil
}

// snapshotChangesHere takes a snapshot of a tablet of this node with its change files.
func (tv *Service) snapshotChangesHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	until := d.Int()
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	m, err := tv.TabletsOf(name).SnapshotChanges(ctx, r, until)
	if err != nil {
		return nil, err
	}
	b := tablet.EncodeMeta(m)
	return func(e *wire.Encoder) { e.Bin(b) }, nil
}

// snapshotCall is the method that takes a snapshot, and its further parameter.
type snapshotCall struct {
	method string
	more   func(*wire.Encoder)
	values int
}

// Changes returns snapshots of the tablets that have the rows start < row <= end, limited to these rows, with change files that have all
// changes up to until, in µs. Errors: those of Snapshots, and api.ErrNoChangeStream.
func (tv *Service) Changes(ctx context.Context, s *table.Schema, start, end []byte, until int64) ([]*tablet.Meta, error) {
	return tv.snapshotRange(ctx, s, start, end, &snapshotCall{MethodSnapshotChanges, func(e *wire.Encoder) { e.Int(until) }, 1})
}

// Snapshots calls each for snapshots of a table's tablets, in order of their ranges: they cover all rows, each once, although tablets may
// split, merge and move meanwhile. It stops at each's error. Other errors: api.ErrNotServing if a tablet is not served for a while, those
// of METADATA and of the servers.
func (tv *Service) Snapshots(ctx context.Context, s *table.Schema, each func(*tablet.Meta) error) error {
	var ends [][]byte
	if err := tv.Rows().Tablets(ctx, s.ID, func(r *metadata.Row) error {
		ends = append(ends, bytes.Clone(r.End))
		return nil
	}); err != nil {
		return err
	}
	if len(ends) == 0 || ends[len(ends)-1] != nil {
		return fmt.Errorf("table %q: %w", s.Name, api.ErrNotServing) // its tablets are still being created
	}
	var start []byte
	for len(ends) > 0 {
		n := min(len(ends), snapshotsAtOnce)
		parts := make([][]*tablet.Meta, n)
		group, inGroup := errgroup.WithContext(ctx)
		for i := range n {
			from, to := start, ends[i]
			group.Go(func() (err error) {
				parts[i], err = tv.snapshotRange(inGroup, s, from, to, &snapshotCall{method: MethodSnapshot})
				return err
			})
			start = to
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, all := range parts {
			for _, m := range all {
				if err := each(m); err != nil {
					return err
				}
			}
		}
		ends = ends[n:]
	}
	return nil
}

// snapshotRange returns snapshots of the tablets that have the rows start < row <= end, limited to these rows.
func (tv *Service) snapshotRange(ctx context.Context, s *table.Schema, start, end []byte, call *snapshotCall) (parts []*tablet.Meta, err error) {
	for at := start; ; {
		var m *tablet.Meta
		if err := untilServed(ctx, func() (err error) {
			m, err = tv.snapshotAfter(ctx, s, at, call)
			return err
		}); err != nil {
			return nil, err
		}
		m.Clip(at, end)
		parts = append(parts, m)
		if at = m.End; string(at) == string(end) {
			return parts, nil
		}
	}
}

// snapshotAfter returns a snapshot of the tablet that has the first row after a row. Its errors have no row keys: users without rights on
// the table read them in the records of backups.
func (tv *Service) snapshotAfter(ctx context.Context, s *table.Schema, row []byte, call *snapshotCall) (m *tablet.Meta, err error) {
	r, err := tv.Rows().Holder(ctx, s.ID, append(bytes.Clone(row), 0))
	if errors.Is(err, metarows.ErrNoRow) {
		return nil, fmt.Errorf("a tablet of table %q has no row in METADATA: %w", s.Name, api.ErrNotServing)
	}
	if err != nil {
		return nil, err
	}
	placedMeta, err := tablet.DecodeMeta(r.Meta)
	if err != nil {
		return nil, err
	}
	err = tv.callServer(ctx, &placed{schema: s, row: r, meta: placedMeta}, call.method, call.more, call.values, func(d *wire.Decoder) (err error) {
		m, err = tablet.DecodeMeta(d.Bytes())
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.Table != s.ID || string(m.Start) > string(row) || len(m.End) > 0 && string(m.End) <= string(row) {
		// The row of METADATA was read before the tablet was split or merged.
		return nil, fmt.Errorf("tablet %d of table %q has changed: %w", m.ID, s.Name, api.ErrNotServing)
	}
	return m, nil
}
