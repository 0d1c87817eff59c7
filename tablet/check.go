package tablet

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/tablet/logbody"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// Checked counts the items that Check has verified.
type Checked struct {
	SSTables, Logs   int64
	Entries, Records int64 // entries of SSTables, records of logs
}

// Problem receives one error that Check finds, with its file and offset.
type Problem func(file string, offset int64, err error)

// Check verifies the SSTables that the metadata of tablets names, and every log, of a server that
// is not running. Each SSTable must exist, be whole and in order, and hold internal keys with
// sequence numbers in the range that the metadata records. Each log record must be whole and hold
// entries. The error is ctx's.
func Check(ctx context.Context, blobs storage.Blobs, metas []*Meta, report Problem) (Checked, error) {
	var sum Checked
	checked := map[blobfs.ID]bool{}
	for _, m := range metas {
		for _, g := range m.Groups {
			for i := range g.Files {
				f := &g.Files[i]
				// Files of merged tablets have overlapping sequence numbers, in different rows.
				if i > 0 && f.MinSeq < g.Files[i-1].MinSeq {
					report(f.Handle.ID.String(), 0, fmt.Errorf("tablet %d, group %s: first sequence number %d is below %d of the preceding file", m.ID, g.Name, f.MinSeq, g.Files[i-1].MinSeq))
				}
				if checked[f.Handle.ID] {
					continue // shared
				}
				checked[f.Handle.ID] = true
				sum.SSTables++
				if err := checkFile(ctx, blobs, f, &sum, report); err != nil {
					return sum, err
				}
			}
		}
	}
	if err := checkChanges(ctx, blobs, metas, checked, &sum, report); err != nil {
		return sum, err
	}
	logs, err := blobs.Logs(ctx)
	if err != nil {
		return sum, err
	}
	for _, id := range logs {
		sum.Logs++
		if err := checkLog(ctx, blobs, id, &sum); err != nil {
			file, offset := placeOf(err, id.String())
			report(file, offset, fmt.Errorf("commit log %s: %w", id, err))
		}
		if ctx.Err() != nil {
			return sum, ctx.Err()
		}
	}
	return sum, nil
}

// checkChanges verifies the change files that are not in checked. The error is ctx's.
func checkChanges(ctx context.Context, blobs storage.Blobs, metas []*Meta, checked map[blobfs.ID]bool, sum *Checked, report Problem) error {
	for _, m := range metas {
		if m.Changes == nil {
			continue
		}
		for i := range m.Changes.Files {
			f := &m.Changes.Files[i]
			if checked[f.Handle.ID] {
				continue // shared
			}
			checked[f.Handle.ID] = true
			sum.SSTables++
			n, err := CheckSSTable(ctx, blobs, f.Handle, report)
			if err == nil && n != f.Records {
				err = fmt.Errorf("%d records, metadata has %d", n, f.Records)
			}
			if err != nil {
				report(f.Handle.ID.String(), 0, err)
			}
			if f.MaxSeq > m.Redo {
				report(f.Handle.ID.String(), 0, fmt.Errorf("tablet %d: record %d is above the redo point %d", m.ID, f.MaxSeq, m.Redo))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// checkFile verifies one SSTable. The error is ctx's.
func checkFile(ctx context.Context, blobs storage.Blobs, f *FileMeta, sum *Checked, report Problem) error {
	name := f.Handle.ID.String()
	blob, err := blobs.OpenBlob(ctx, f.Handle)
	if err != nil {
		file, offset := placeOf(err, name)
		report(file, offset, err)
		return ctx.Err()
	}
	defer blob.Close()
	damaged := false
	_, err = sstable.Verify(ctx, blob, sstable.VerifyOptions{Name: name, FilterPrefixes: FilterPrefixes}, func(err error) {
		damaged = true
		file, offset := placeOf(err, name)
		report(file, offset, err)
	})
	if err != nil || damaged {
		return ctx.Err()
	}
	if err := checkKeys(ctx, blob, f, sum); err != nil {
		report(name, 0, err)
	}
	return ctx.Err()
}

func checkKeys(ctx context.Context, blob storage.BlobReader, f *FileMeta, sum *Checked) error {
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Name: f.Handle.ID.String()})
	if err != nil {
		return err
	}
	it := t.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: readAheadBytes})
	defer it.Close()
	least, most := f.MinSeq, f.MaxSeq
	if _, bulk := t.Properties()[propBulk]; bulk {
		if least == 0 || least != most {
			return errBulkNumbers(f)
		}
		least, most = 0, 0
	}
	n := int64(0)
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := ikey.Split(it.Key()); err != nil {
			return fmt.Errorf("entry %d, key %.64x: %w", n, it.Key(), err)
		}
		if seq := ikey.Seq(it.Key()); seq < least || seq > most {
			return fmt.Errorf("entry %d: sequence number %d is not between %d and %d", n, seq, least, most)
		}
		n++
	}
	sum.Entries += n
	if err := it.Err(); err != nil {
		return err
	}
	if n != f.Entries {
		return fmt.Errorf("%d entries, metadata has %d", n, f.Entries)
	}
	return nil
}

func checkLog(ctx context.Context, blobs storage.Blobs, id blobfs.ID, sum *Checked) error {
	r, err := blobs.OpenLog(ctx, id)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		batch, pos, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for len(batch) > 0 {
			var rec commitlog.Record
			if rec, batch, err = commitlog.ReadRecord(batch); err != nil {
				return fmt.Errorf("batch before position %d: %w", pos, err)
			}
			ops := uint32(0)
			_, err := logbody.EachEntry(rec.Body, rec.First, rec.Time, nil, func(key, _ []byte) error {
				ops++
				_, err := ikey.Split(key)
				return err
			})
			if err == nil && ops != rec.Ops {
				err = fmt.Errorf("%w: %d entries, header has %d", logbody.ErrBadBody, ops, rec.Ops)
			}
			if err != nil {
				return fmt.Errorf("record %d: %w", rec.First, err)
			}
			sum.Records++
		}
	}
}

// placeOf returns the file and offset in err, or file and 0.
func placeOf(err error, file string) (string, int64) {
	var extent *blobfs.CorruptError
	var t *sstable.CorruptError
	switch {
	case errors.As(err, &extent):
		return extent.File, extent.Offset
	case errors.As(err, &t):
		return t.File, t.Offset
	}
	return file, 0
}

// CheckSSTable verifies a blob if it is an SSTable and returns its number of entries, or -1 if it
// is not one. The error is the blob's, or ctx's.
func CheckSSTable(ctx context.Context, blobs storage.Blobs, h blobfs.Handle, report Problem) (entries int64, err error) {
	blob, err := blobs.OpenBlob(ctx, h)
	if err != nil {
		return -1, err
	}
	defer blob.Close()
	if is, err := sstable.Is(blob); !is || err != nil {
		return -1, err
	}
	name := h.ID.String()
	stats, err := sstable.Verify(ctx, blob, sstable.VerifyOptions{Name: name, FilterPrefixes: FilterPrefixes}, func(err error) {
		file, offset := placeOf(err, name)
		report(file, offset, err)
	})
	return int64(stats.Entries), err
}
