package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/memtable"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/storage"
)

// partBytes is the memory of the records of one part. 32 MiB: half of a memtable, which a tablet server has for each tablet.
const partBytes = 32 << 20

// Config describes the files of a Writer.
type Config struct {
	// Create begins the blob of a file.
	Create func(ctx context.Context) (storage.BlobWriter, error)
	// Family returns the family with that name and id, or nil: its entries are left out.
	Family func(name []byte, id uint32) *table.Family
	// Groups returns the locality groups that may have entries of the rows that are written. The deletion of a row is written to all of them.
	Groups func() []string
	// Options returns the options of the files of a group.
	Options func(group string) sstable.Options
}

// File is an SSTable that was written.
type File struct {
	Group          string
	Handle         blobfs.Handle
	MinSeq, MaxSeq uint64
	Entries        int64
	RawBytes       int64 // of keys and values, before compression
	RowDeletions   int64 // delete row and delete family entries
}

// Writer writes records as SSTables.
type Writer struct {
	cfg     Config
	part    *memtable.Table
	scratch []byte
	files   []File
	seen    map[uint32]bool
	last    int64
}

// NewWriter returns a Writer.
func NewWriter(cfg Config) *Writer {
	return &Writer{cfg: cfg, part: memtable.New(), seen: map[uint32]bool{}}
}

// Seen reports whether a record had an entry of the family with that id.
func (w *Writer) Seen(id uint32) bool { return w.seen[id] }

// Add adds a record, in order of sequence numbers for each row. The error is that of the store, or that the record is malformed.
func (w *Writer) Add(ctx context.Context, r *changes.Record) error {
	if w.part.Len() > 0 && w.part.Bytes()+int64(len(r.Body)) > partBytes {
		if err := w.write(ctx); err != nil {
			return err
		}
	}
	var err error
	w.scratch, err = logbody.EachEntry(r.Body, r.First, r.Time, w.scratch, func(key, value []byte) error {
		p, err := ikey.Split(key)
		if err != nil {
			return err
		}
		if p.Kind != ikey.KindDeleteRow {
			part := key[p.Row:p.Family]
			id := ikey.FamilyID(part)
			if w.cfg.Family(ikey.FamilyName(part), id) == nil {
				return nil
			}
			w.seen[id] = true
		}
		_, err = w.part.Add(key, value)
		return err
	})
	w.last = max(w.last, r.Time)
	return err
}

// Finish writes out the records that are in memory. It returns the files since the last Finish, in the order of RP2, and the largest time of
// their records, in µs. Records of rows of which others were added before may follow.
func (w *Writer) Finish(ctx context.Context) (files []File, last int64, err error) {
	if err := w.write(ctx); err != nil {
		return nil, 0, err
	}
	files, last = w.files, w.last
	w.files, w.last = nil, 0
	return files, last, nil
}

// write writes out the part in memory.
func (w *Writer) write(ctx context.Context) error {
	if w.part.Len() == 0 {
		return nil
	}
	open := map[string]*file{}
	err := w.writeTo(ctx, open)
	for _, group := range sortedGroups(open) {
		f := open[group]
		if err == nil {
			err = f.finish(ctx)
		}
		if err != nil {
			f.blob.Abort()
			continue
		}
		w.files = append(w.files, f.File)
	}
	w.part = memtable.New()
	return err
}

func sortedGroups(open map[string]*file) (groups []string) {
	for group := range open {
		groups = append(groups, group)
	}
	slices.Sort(groups)
	return groups
}

func (w *Writer) writeTo(ctx context.Context, open map[string]*file) error {
	it, all := w.part.Iter(), w.cfg.Groups()
	for ok := it.First(); ok; ok = it.Next() {
		p, err := ikey.Split(it.Key())
		if err != nil {
			return err
		}
		groups := all
		if p.Kind != ikey.KindDeleteRow {
			part := it.Key()[p.Row:p.Family]
			groups = []string{w.cfg.Family(ikey.FamilyName(part), ikey.FamilyID(part)).Group}
		}
		for _, group := range groups {
			f, err := w.fileOf(ctx, open, group)
			if err == nil {
				err = f.add(it.Key(), it.Value(), p.Kind)
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

// file is an SSTable that is being written.
type file struct {
	File
	blob    storage.BlobWriter
	w       *sstable.Writer
	largest int
}

func (w *Writer) fileOf(ctx context.Context, open map[string]*file, group string) (*file, error) {
	if f := open[group]; f != nil {
		return f, nil
	}
	blob, err := w.cfg.Create(ctx)
	if err != nil {
		return nil, err
	}
	f := &file{File: File{Group: group}, blob: blob, w: sstable.NewWriter(blob, w.cfg.Options(group))}
	open[group] = f
	return f, nil
}

func (f *file) add(key, value []byte, kind ikey.Kind) error {
	seq := ikey.Seq(key)
	if f.MaxSeq == 0 {
		f.MinSeq = seq
	}
	f.MinSeq, f.MaxSeq, f.largest = min(f.MinSeq, seq), max(f.MaxSeq, seq), max(f.largest, len(value))
	if kind == ikey.KindDeleteRow || kind == ikey.KindDeleteFamily {
		f.RowDeletions++
	}
	return f.w.Add(key, value)
}

func (f *file) finish(ctx context.Context) error {
	m, err := f.w.Finish(map[string][]byte{sstable.PropLargest: binary.AppendUvarint(nil, uint64(f.largest))})
	if err != nil {
		return err
	}
	f.Entries, f.RawBytes = int64(m.Entries), int64(m.RawBytes)
	f.Handle, err = f.blob.Seal(ctx)
	return err
}
