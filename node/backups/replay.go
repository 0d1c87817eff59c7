package backups

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/replay"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/storage"
)

// pins are blobs that this node has written, which are in use until they are released.
type pins []blobfs.ID

func (s *Service) release(p *pins) {
	for _, id := range *p {
		s.Store().Release(id)
	}
}

// workReplays makes all backups for a time that are to be made. again means that one was not made.
func (s *Service) workReplays(ctx context.Context) (again bool, err error) {
	err = s.Roots.Backups(ctx, func(id string, rec *backup.Record) error {
		if rec.State != backup.Making || rec.Replay == nil {
			return nil
		}
		made, err := s.makeOne(ctx, id)
		again = again || !made
		return err
	})
	return again, err
}

// replayPlan is what a backup for a time is made of.
type replayPlan struct {
	*backup.Replay
	base   *backup.Manifest
	close  func() // ends the use of base
	index  int    // of the table in base
	schema *table.Schema
	source *table.Schema // of the table, with the name under which its tablets are served
}

// planReplay returns what a backup for a time is made of, and an error if that is not possible. The caller closes the plan.
func (s *Service) planReplay(ctx context.Context, r *backup.Replay, now time.Time) (*replayPlan, error) {
	rec, err := s.made(ctx, r.From)
	if err != nil {
		return nil, err
	}
	switch {
	case rec.Imported:
		return nil, api.NewRestoreTimeError(api.RestoreOtherCluster, 0)
	case rec.Replay != nil:
		return nil, api.NewRestoreTimeError(api.RestoreOfRestore, 0)
	case r.To > now.UnixMicro():
		return nil, api.NewRestoreTimeError(api.RestoreInFuture, now.UnixMicro())
	}
	p := &replayPlan{Replay: r}
	if p.base, p.close, err = s.Roots.OpenManifest(ctx, rec.Manifest); err != nil {
		return nil, fmt.Errorf("backup %s: %w", r.From, err)
	}
	if err = s.checkReplay(ctx, p); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (s *Service) checkReplay(ctx context.Context, p *replayPlan) (err error) {
	p.index = slices.IndexFunc(p.base.Tables, func(t backup.Table) bool { return t.Schema.Name == p.Table })
	if p.index < 0 {
		return fmt.Errorf("backup %s has no table %.80q: %w", p.From, p.Table, api.ErrNoTable)
	}
	p.schema = p.base.Tables[p.index].Schema
	if p.source, err = s.sourceOf(ctx, p.schema.ID); err != nil {
		return fmt.Errorf("table %q of backup %s: %w", p.Table, p.From, err)
	}
	if p.source.ChangeRetention == 0 || p.schema.ChangeRetention == 0 {
		return fmt.Errorf("table %q: %w: only a table that had one since the backup can be restored to a time", p.source.Name, api.ErrNoChangeStream)
	}
	tablets, last, err := p.tablets()
	if err != nil {
		return err
	}
	if p.To < last {
		return api.NewRestoreTimeError(api.RestoreBeforeBackup, last)
	}
	return s.checkKept(ctx, p, tablets)
}

// sourceOf returns the schema of the table with an id, which may have been dropped, with the name under which its tablets are served.
func (s *Service) sourceOf(ctx context.Context, id uint64) (*table.Schema, error) {
	served, err := s.Catalog.SchemaByID(ctx, id)
	if errors.Is(err, api.ErrNoTable) {
		return nil, fmt.Errorf("the table was deleted, and its changes with it: restore the backup without a time: %w", api.ErrNoTable)
	}
	return served, err
}

// beginning is where the changes of a tablet of a backup begin.
type beginning struct {
	start, end []byte
	redo       uint64
	stamped    int64 // in µs: what was made later has a later time
}

// tablets returns where the changes of the backup's tablets begin, and the time of the last change in it, in µs.
func (p *replayPlan) tablets() (all []beginning, last int64, err error) {
	err = p.base.Tablets(p.index, func(_ int64, m *tablet.Meta) error {
		all, last = append(all, beginning{m.Start, m.End, m.Redo, m.Stamped}), max(last, m.Stamped)
		return nil
	})
	return all, last, err
}

// checkKept returns an error if changes since the backup are not kept any more, according to METADATA.
func (s *Service) checkKept(ctx context.Context, p *replayPlan, begins []beginning) error {
	var start []byte
	return s.Tablets.Rows().Tablets(ctx, p.source.ID, func(r *metadata.Row) error {
		m, err := tablet.DecodeMeta(r.Meta)
		if err != nil {
			return err
		}
		if m.Changes != nil {
			for i := range begins {
				if err := begins[i].check(m.Changes, start, r.End); err != nil {
					return err
				}
			}
		}
		start = bytes.Clone(r.End)
		return nil
	})
}

// check returns an error if changes since the backup of the rows start < row <= end are not kept any more.
func (c *beginning) check(set *changes.Set, start, end []byte) error {
	from, to := start, end
	if bytes.Compare(c.start, from) > 0 {
		from = c.start
	}
	if len(to) == 0 || len(c.end) > 0 && bytes.Compare(c.end, to) < 0 {
		to = c.end
	}
	if len(to) > 0 && bytes.Compare(from, to) >= 0 {
		return nil // no rows in common
	}
	if seq, last := set.Floor(from, to); seq > c.redo {
		return api.NewRestoreTimeError(api.RestoreNotKept, last+1)
	}
	if seq, last := set.ClearFloor(from, to); seq >= c.redo && last > c.stamped { // in earlier versions, a clear has the number of the write before it, which the backup may have
		return api.NewRestoreTimeError(api.RestoreNotKept, last+1)
	}
	return nil
}

// replay seals a manifest of a table as it was at a time: the files of a backup, and those of the changes since.
func (s *Service) replay(ctx context.Context, rec *backup.Record, files *pins) error {
	p, err := s.planReplay(ctx, rec.Replay, time.Now())
	if err != nil {
		return err
	}
	defer p.close()
	err = s.sealManifest(ctx, rec, func(to *bufio.Writer) ([]backup.Table, error) {
		w := backup.NewWriter(to)
		r := &replayer{Service: s, plan: p, files: files}
		r.writer = replay.NewWriter(replay.Config{Create: r.create, Family: p.family, Groups: r.groups, Options: p.options})
		if err := p.base.Tablets(p.index, func(_ int64, m *tablet.Meta) error {
			if err := r.tablet(ctx, m); err != nil {
				return err
			}
			return w.Add(m)
		}); err != nil {
			return nil, fmt.Errorf("table %q: %w", p.Table, err)
		}
		if err := w.EndTable(p.restored(r.writer.Seen)); err != nil {
			return nil, err
		}
		return w.Finish()
	})
	if err == nil {
		rec.Tables = []string{p.Table}
	}
	return err
}

// family returns the family with that name and id, of the backup or of the present table; nil if it is in neither.
func (p *replayPlan) family(name []byte, id uint32) *table.Family {
	for _, s := range []*table.Schema{p.schema, p.source} {
		if f := s.Family(string(name)); f != nil && f.ID == id {
			return f
		}
	}
	return nil
}

// options returns the options of the files of a group.
func (p *replayPlan) options(group string) sstable.Options {
	for _, s := range []*table.Schema{p.schema, p.source} {
		if g := s.Group(group); g != nil {
			return tablet.FileOptions(g)
		}
	}
	return tablet.FileOptions(p.schema.Group(table.DefaultGroup))
}

// restored returns the schema of the restored table: that of the backup, with the families that were added since. Of two families of one
// name the younger one is in it if seen reports that it had been written by that time.
func (p *replayPlan) restored(seen func(id uint32) bool) *table.Schema {
	s := p.schema.Clone()
	s.NextFamilyID = max(s.NextFamilyID, p.source.NextFamilyID)
	for _, f := range p.source.Families {
		at, there := slices.BinarySearchFunc(s.Families, f.Name, func(f table.Family, name string) int { return bytes.Compare([]byte(f.Name), []byte(name)) })
		switch {
		case !there:
			s.Families = slices.Insert(s.Families, at, f)
		case s.Families[at].ID != f.ID && seen(f.ID):
			s.Families[at] = f
		default:
			continue
		}
		if s.Group(f.Group) == nil {
			s.Groups = append(s.Groups, *p.source.Group(f.Group))
			slices.SortFunc(s.Groups, func(a, b table.LocalityGroup) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		}
	}
	return s
}

// replayer adds changes to the tablets of a backup.
type replayer struct {
	*Service
	plan   *replayPlan
	files  *pins
	writer *replay.Writer
	base   *tablet.Meta // of the tablet that is written
}

// groups returns the names of the groups that may have entries of the tablet.
func (r *replayer) groups() []string {
	all := map[string]bool{}
	for _, s := range []*table.Schema{r.plan.schema, r.plan.source} {
		for i := range s.Groups {
			all[s.Groups[i].Name] = true
		}
	}
	for i := range r.base.Groups {
		all[r.base.Groups[i].Name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// create begins a blob, which is in use on this node until its pin is released.
func (r *replayer) create(ctx context.Context) (storage.BlobWriter, error) {
	blob, err := r.Store().Create(ctx)
	if err != nil {
		return nil, err
	}
	return &pinnedBlob{blob, r.files}, nil
}

// pinnedBlob records a blob that was sealed.
type pinnedBlob struct {
	storage.BlobWriter
	files *pins
}

// Seal implements storage.BlobWriter.
func (b *pinnedBlob) Seal(ctx context.Context) (blobfs.Handle, error) {
	h, err := b.BlobWriter.Seal(ctx)
	if err == nil {
		*b.files = append(*b.files, h.ID)
	}
	return h, err
}

// tablet adds the changes of a tablet's rows to its metadata.
func (r *replayer) tablet(ctx context.Context, m *tablet.Meta) error {
	parts, err := r.Tablets.Changes(ctx, r.plan.source, m.Start, m.End, r.plan.To)
	if err != nil {
		return err
	}
	r.base = m
	c := beginning{m.Start, m.End, m.Redo, m.Stamped}
	for _, part := range parts {
		if part.Changes == nil {
			return fmt.Errorf("tablet %d is served by a node of a version that does not restore to a time: %w", part.ID, api.ErrUnavailable)
		}
		if err := c.check(part.Changes, part.Start, part.End); err != nil {
			return err
		}
		files, last, err := r.part(ctx, part, c.redo)
		if err != nil {
			return err
		}
		m.Stamped = max(m.Stamped, last)
		for _, x := range part.Changes.Clears {
			if x.Seq >= c.redo && x.Time <= r.plan.To { // one of before the backup is in it
				m.Cleared, m.Redo, m.Stamped = m.Cleared.Add(x.Range), max(m.Redo, x.Seq), max(m.Stamped, x.Time)
			}
		}
		for i := range files {
			f := &files[i]
			m.Redo = max(m.Redo, f.MaxSeq)
			m.AddFile(f.Group, &tablet.FileMeta{Handle: f.Handle, MinSeq: f.MinSeq, MaxSeq: f.MaxSeq, Entries: f.Entries, RawBytes: f.RawBytes,
				RowDeletions: f.RowDeletions, Shared: true})
		}
	}
	return nil
}

// changesAhead is how many bytes of a change file are read at once.
const changesAhead = 1 << 20

// part writes the changes of a part of a tablet after a sequence number.
func (r *replayer) part(ctx context.Context, part *tablet.Meta, after uint64) (files []replay.File, last int64, err error) {
	var later []changes.Later
	for _, f := range part.Changes.Files {
		if f.MaxSeq <= after || f.MinTime > r.plan.To {
			continue
		}
		later = append(later, changes.Later{MinSeq: max(f.MinSeq, after+1), Open: func() (changes.Source, error) {
			blob, err := r.Store().OpenBlob(ctx, f.Handle)
			if err != nil {
				return nil, err
			}
			return changes.Open(ctx, blob, &f, after+1, changesAhead, nil)
		}})
	}
	records := changes.NewMerge(later)
	defer records.Close()
	for records.Next() {
		if x := records.Record(); x.Time <= r.plan.To || planted.On(planted.RestoredTooLate) {
			if err := r.writer.Add(ctx, x); err != nil {
				return nil, 0, err
			}
		}
	}
	if err := records.Err(); err != nil {
		return nil, 0, err
	}
	return r.writer.Finish(ctx)
}
