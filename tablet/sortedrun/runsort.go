package sortedrun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/storage"
)

// Payloads iterates over the batches of a commit log, or of a piece of one, that are sorted into
// runs.
type Payloads interface {
	// Next returns the next batch, valid until the following call, and the position after it. The
	// error is io.EOF after the last one.
	Next() (payload []byte, pos int64, err error)
}

// SortLog sorts the entries of p into runs, which are durable when it returns (paper §6,
// "Commit-log implementation"). bytes is the approximate length of p.
//
// It uses memory for the data, 56 bytes for each record and 16 for each entry. If that would exceed
// memory, it writes several runs, each of which is sorted; memory 0 means no limit. A batch is
// never divided between runs, however long it is. If SortLog is interrupted, it leaves at most one
// unfinished blob. Errors: those of p and of blobs, commitlog.ErrBadRecord, ctx's.
func SortLog(ctx context.Context, blobs storage.Blobs, p Payloads, bytes, memory int64) (runs []Meta, err error) {
	if memory == 0 {
		memory = math.MaxInt64
	}
	defer func() {
		if err != nil {
			deleteRuns(ctx, blobs, runs)
			runs = nil
		}
	}()
	s := runSorter{arena: make([]byte, 0, min(max(bytes, 0), memory, arenaBytesMax))}
	for {
		batch, pos, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return runs, err
		}
		if len(s.entries) > 0 && s.takes()+batchMemory*int64(len(batch)) > memory {
			m, err := s.finish(ctx, blobs)
			if err != nil {
				return runs, err
			}
			runs = append(runs, m)
			s = runSorter{arena: s.arena[:0], rows: s.rows[:0], entries: s.entries[:0], scratch: s.scratch}
		}
		if err := s.add(batch); err != nil {
			return runs, fmt.Errorf("batch before position %d: %w", pos, err)
		}
	}
	if len(s.entries) == 0 && len(runs) > 0 {
		return runs, nil
	}
	m, err := s.finish(ctx, blobs)
	if err != nil {
		return runs, err
	}
	return append(runs, m), nil
}

// batchMemory is the estimated memory of a batch, as a multiple of its bytes: keys are longer in
// memory, and records of a change stream are there twice.
const batchMemory = 3

// deleteRuns deletes runs that are not returned to the caller. Garbage collection removes what
// remains.
func deleteRuns(ctx context.Context, blobs storage.Blobs, runs []Meta) {
	for i := range runs {
		_ = blobs.Delete(context.WithoutCancel(ctx), runs[i].Handle.ID)
	}
}

// arenaBytesMax bounds the initial allocation, in bytes. 256 MiB: four pieces of the usual size.
const arenaBytesMax = 256 << 20

// runSorter splits records into entries and sorts them. The compared data lies in one arena: the
// row part of each record, and of each entry the rest of its key, then its value.
type runSorter struct {
	arena   []byte
	rows    []runRow   // one per record
	entries []runEntry // of all records
	scratch []byte
	meta    Meta
}

// runRow is the row of a record.
type runRow struct {
	table    uint64
	prefix   uint64 // the row's first bytes after the common prefix of all rows
	off, len uint32
}

// runEntry is an entry: suffix bytes of the key at off, then value bytes.
type runEntry struct {
	row                uint32 // index of its record's row; after sorting, index among the distinct rows
	off, suffix, value uint32
}

var errRunTooLarge = errors.New("commit log piece exceeds 4 GiB")

// add adds a batch of records.
func (s *runSorter) add(batch []byte) error {
	for len(batch) > 0 {
		var r commitlog.Record
		var err error
		if r, batch, err = commitlog.ReadRecord(batch); err != nil {
			return err
		}
		if err := s.addRecord(&r); err != nil {
			return fmt.Errorf("record %d of table %d: %w", r.First, r.Table, err)
		}
	}
	return nil
}

func (s *runSorter) addRecord(r *commitlog.Record) error {
	part, err := logbody.RowPart(r.Body)
	if err != nil {
		return err
	}
	row := runRow{table: r.Table, off: uint32(len(s.arena)), len: uint32(len(part))}
	s.arena = append(s.arena, part...)
	first := len(s.entries)
	stamp := r.Time
	if planted.On(planted.StampsRounded) {
		stamp -= stamp % 1000
	}
	s.scratch, err = logbody.EachEntry(r.Body, r.First, stamp, s.scratch, func(key, value []byte) error {
		suffix := key[len(part):]
		e := runEntry{row: uint32(len(s.rows)), off: uint32(len(s.arena)), suffix: uint32(len(suffix)), value: uint32(len(value))}
		s.arena = append(append(s.arena, suffix...), value...)
		if len(s.arena) > math.MaxUint32 {
			return errRunTooLarge
		}
		s.entries = append(s.entries, e)
		return nil
	})
	if err == nil && len(s.entries)-first != int(r.Ops) {
		err = fmt.Errorf("%w: %d entries, header has %d", logbody.ErrBadBody, len(s.entries)-first, r.Ops)
	}
	if err != nil || r.Ops == 0 {
		return err
	}
	if logbody.Streamed(r.Body) {
		if err := s.addWhole(r, stamp); err != nil {
			return err
		}
	}
	s.rows = append(s.rows, row)
	s.meta.MaxSeq = max(s.meta.MaxSeq, r.First+uint64(r.Ops)-1)
	s.meta.MaxTime = max(s.meta.MaxTime, r.Time)
	return nil
}

// addWhole adds a record of a change stream under the key logbody.AppendRecordKey, in addition to its entries.
func (s *runSorter) addWhole(r *commitlog.Record, stamp int64) error {
	at := len(s.arena)
	s.arena = logbody.AppendRecordKey(s.arena, stamp, r.First)
	e := runEntry{row: uint32(len(s.rows)), off: uint32(at), suffix: uint32(len(s.arena) - at), value: uint32(len(r.Body))}
	s.arena = append(s.arena, r.Body...)
	if len(s.arena) > math.MaxUint32 {
		return errRunTooLarge
	}
	s.entries = append(s.entries, e)
	return nil
}

// takes returns the memory of the added data and of sorting it, in bytes.
func (s *runSorter) takes() int64 {
	return int64(len(s.arena)) + int64(len(s.rows))*56 + int64(len(s.entries))*16
}

// finish sorts the added entries and writes them. Without entries there is no blob.
func (s *runSorter) finish(ctx context.Context, blobs storage.Blobs) (Meta, error) {
	if len(s.entries) == 0 {
		return s.meta, nil
	}
	s.sort()
	return s.write(ctx, blobs)
}

func (s *runSorter) rowPart(r *runRow) []byte { return s.arena[r.off:][:r.len] }

func (s *runSorter) compareRows(a, b *runRow) int {
	if c := cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.prefix, b.prefix)); c != 0 {
		return c
	}
	return bytes.Compare(s.rowPart(a), s.rowPart(b))
}

// sort sorts the rows, then the entries of each row.
func (s *runSorter) sort() {
	s.prefixes()
	order := make([]uint32, len(s.rows))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return s.compareRows(&s.rows[a], &s.rows[b]) })
	place := make([]uint32, len(order))
	sorted := make([]runRow, 0, len(order))
	for _, i := range order {
		if n := len(sorted); n == 0 || s.compareRows(&sorted[n-1], &s.rows[i]) != 0 {
			sorted = append(sorted, s.rows[i])
		}
		place[i] = uint32(len(sorted) - 1)
	}
	s.rows = sorted
	for i := range s.entries {
		s.entries[i].row = place[s.entries[i].row]
	}
	slices.SortFunc(s.entries, func(a, b runEntry) int {
		if a.row != b.row {
			return cmp.Compare(a.row, b.row)
		}
		return bytes.Compare(s.arena[a.off:][:a.suffix], s.arena[b.off:][:b.suffix])
	})
}

// prefixes sets the rows' prefixes, so that most comparisons avoid the arena, which exceeds any
// cache.
func (s *runSorter) prefixes() {
	same := s.rowPart(&s.rows[0])
	for i := range s.rows {
		row := s.rowPart(&s.rows[i])
		n := 0
		for n < min(len(row), len(same)) && row[n] == same[n] {
			n++
		}
		same = same[:n]
	}
	for i := range s.rows {
		var b [8]byte
		copy(b[:], s.rowPart(&s.rows[i])[len(same):])
		s.rows[i].prefix = binary.BigEndian.Uint64(b[:])
	}
}

// bytes returns the size of the entries with their keys.
func (s *runSorter) bytes() (n int64) {
	for i := range s.entries {
		e := &s.entries[i]
		n += tableIDLen + int64(s.rows[e.row].len) + int64(e.suffix) + int64(e.value)
	}
	return n
}

// checkEvery is the number of entries after which a writer checks ctx.
const checkEvery = 4096

// write writes the entries as a high-priority SSTable: the log is released when the tablets have
// read it.
func (s *runSorter) write(ctx context.Context, blobs storage.Blobs) (m Meta, err error) {
	blob, err := blobs.CreateHighPriority(ctx, s.bytes())
	if err != nil {
		return m, fmt.Errorf("create a run: %w", err)
	}
	defer func() {
		if err != nil {
			blob.Abort()
		}
	}()
	w := sstable.NewWriter(blob, sstable.Options{})
	largest := uint32(0)
	for i := range s.entries {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return m, ctx.Err()
		}
		e := &s.entries[i]
		row := &s.rows[e.row]
		key := binary.BigEndian.AppendUint64(s.scratch[:0], row.table)
		key = append(append(key, s.rowPart(row)...), s.arena[e.off:][:e.suffix]...)
		s.scratch = key
		if i > 0 && s.repeats(&s.entries[i-1], e) {
			continue
		}
		largest = max(largest, e.value)
		if err := w.Add(key, s.arena[e.off+e.suffix:][:e.value]); err != nil {
			return m, fmt.Errorf("write a run: %w", err)
		}
	}
	file, err := w.Finish(map[string][]byte{sstable.PropLargest: binary.AppendUvarint(nil, uint64(largest))})
	if err != nil {
		return m, fmt.Errorf("write a run: %w", err)
	}
	m = s.meta
	m.Entries, m.RawBytes = int64(file.Entries), int64(file.RawBytes)
	if m.Handle, err = blob.Seal(ctx); err != nil {
		return Meta{}, fmt.Errorf("write a run: %w", err)
	}
	return m, nil
}

// repeats reports whether b repeats a: a batch may have been appended again after an attempt with
// an unknown outcome.
func (s *runSorter) repeats(a, b *runEntry) bool {
	return a.row == b.row && a.suffix == b.suffix && a.value == b.value &&
		bytes.Equal(s.arena[a.off:][:a.suffix+a.value], s.arena[b.off:][:b.suffix+b.value])
}
