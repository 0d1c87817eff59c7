package sortedrun

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// Meta describes a sorted run. The entries are in an SSTable. Its keys are
//
//	table id (8 bytes, big-endian) | internal key (see ikey)
//
// and its values are those of the log.
type Meta struct {
	Handle   blobfs.Handle // of the SSTable; zero if there are no entries
	Entries  int64
	RawBytes int64 // of keys and values, before compression
	// MaxSeq and MaxTime are the highest sequence number and server timestamp (µs).
	MaxSeq  uint64
	MaxTime int64
}

const (
	runVersion = 1
	runValues  = 6
)

var errBadRun = errors.New("malformed metadata of a sorted run")

// Encode encodes m as the MessagePack array
//
//	[1, entries, raw bytes, max seq, max time, handle or nil]
//
// Later versions append values; readers skip unknown ones.
func Encode(m *Meta) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(runValues)
	e.Uint(runVersion)
	e.Int(m.Entries)
	e.Int(m.RawBytes)
	e.Uint(m.MaxSeq)
	e.Int(m.MaxTime)
	if m.Entries == 0 {
		e.Nil()
	} else {
		blobfs.AppendHandle(e, m.Handle)
	}
	return append([]byte(nil), e.Bytes()...)
}

// Decode decodes the result of Encode.
func Decode(b []byte) (Meta, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return Meta{}, fmt.Errorf("%w: %d of %d bytes are a message: %v", errBadRun, n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if version := d.Uint(); d.Err() == nil && (n < runValues || version != runVersion) {
		return Meta{}, fmt.Errorf("%w: version %d with %d values", errBadRun, version, n)
	}
	m := Meta{Entries: d.Int(), RawBytes: d.Int(), MaxSeq: d.Uint(), MaxTime: d.Int()}
	if m.Entries == 0 {
		d.Skip()
	} else {
		m.Handle = blobfs.DecodeHandle(&d)
	}
	if err := d.Err(); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", errBadRun, err)
	}
	if m.Entries < 0 || m.RawBytes < 0 {
		return Meta{}, fmt.Errorf("%w: %d entries, %d bytes", errBadRun, m.Entries, m.RawBytes)
	}
	return m, nil
}

// runsVersion marks the encoding of several runs.
const runsVersion = 2

// EncodeAll encodes the runs of a piece of a log: a single run like Encode, which all readers
// understand, and several as the MessagePack array
//
//	[2, [run…]]
//
// with each run encoded by Encode.
func EncodeAll(runs []Meta) []byte {
	if len(runs) == 1 {
		return Encode(&runs[0])
	}
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(2)
	e.Uint(runsVersion)
	e.Array(len(runs))
	for i := range runs {
		e.Raw(Encode(&runs[i]))
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeAll decodes the result of EncodeAll.
func DecodeAll(b []byte) (runs []Meta, err error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: %d of %d bytes are a message: %v", errBadRun, n, len(b), err)
	}
	d := wire.NewDecoder(b)
	if n := d.Array(); n < 2 || d.Uint() != runsVersion || d.Err() != nil {
		m, err := Decode(b)
		return []Meta{m}, err
	}
	for n := d.Array(); n > 0 && d.Err() == nil; n-- {
		m, err := Decode(d.Raw())
		if err != nil {
			return nil, err
		}
		runs = append(runs, m)
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRun, err)
	}
	return runs, nil
}

// Run is a piece of a dead server's commit log, sorted by table and key (paper §6, "Commit-log
// implementation").
type Run interface {
	// Entries returns the entries of a table's rows with start < row <= end, an empty start or end
	// meaning no bound.
	Entries(ctx context.Context, table uint64, start, end []byte) (Entries, error)
	// MaxSeq and MaxTime are at least the sequence number and the server timestamp (µs) of every
	// record in the run.
	MaxSeq() uint64
	MaxTime() int64
}

// Entries iterates over entries in the order of their internal keys (see ikey). An entry may be
// in several runs. Keys are valid until the next move, values indefinitely.
type Entries interface {
	First() bool
	SeekGE(key []byte) bool
	Next() bool
	Key() []byte
	Value() []byte
	Err() error
	Close() error
}

// sortedRun is a Run written by SortLog.
type sortedRun struct {
	open *OpenRuns
	meta Meta
}

func (r *sortedRun) MaxSeq() uint64 { return r.meta.MaxSeq }
func (r *sortedRun) MaxTime() int64 { return r.meta.MaxTime }

// ReadAheadBytes is the read size for runs, in bytes. 256 KiB: a tablet's part of a run may be less,
// and a tablet has one iterator in each of dozens of runs.
const ReadAheadBytes = 256 << 10

// Entries implements Run. Errors: those of the blob, a *sstable.CorruptError.
func (r *sortedRun) Entries(ctx context.Context, table uint64, start, end []byte) (Entries, error) {
	if r.meta.Entries == 0 {
		return noEntries{}, nil
	}
	run, err := r.open.acquire(ctx, r.meta.Handle)
	if err != nil {
		return nil, err
	}
	e := &FileEntries{of: r, run: run, key: binary.BigEndian.AppendUint64(nil, table)}
	opts := sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: ReadAheadBytes}
	opts.Lower = binary.BigEndian.AppendUint64(nil, table)
	if len(start) > 0 {
		opts.Lower = ikey.AppendRowEnd(opts.Lower, start)
	}
	switch {
	case len(end) > 0:
		opts.Upper = ikey.AppendRowEnd(binary.BigEndian.AppendUint64(nil, table), end)
	case table < math.MaxUint64:
		opts.Upper = binary.BigEndian.AppendUint64(nil, table+1)
	}
	e.it = run.table.NewIter(opts)
	return e, nil
}

// FileEntries is the Entries of a run in an SSTable. It iterates over a table's entries of a run, with the table id removed from their keys.
type FileEntries struct {
	of  *sortedRun
	run *openRun // nil once closed
	it  *sstable.Iter
	key []byte // the table's id, and a buffer for the key of a seek
}

// tableIDLen is the length of the table id in keys.
const tableIDLen = 8

// Iter returns the iterator over the run's SSTable.
func (e *FileEntries) Iter() *sstable.Iter { return e.it }

// Largest returns the size of the run's largest value in bytes, 0 if it is not recorded.
func (e *FileEntries) Largest() int64 { return e.run.largest }

func (e *FileEntries) First() bool { return e.it.First() }
func (e *FileEntries) SeekGE(key []byte) bool {
	e.key = append(e.key[:tableIDLen], key...)
	return e.it.SeekGE(e.key)
}
func (e *FileEntries) Next() bool    { return e.it.Next() }
func (e *FileEntries) Key() []byte   { return e.it.Key()[tableIDLen:] }
func (e *FileEntries) Value() []byte { return e.it.Value() }
func (e *FileEntries) Err() error    { return e.it.Err() }

func (e *FileEntries) Close() error {
	if e.run == nil {
		return nil
	}
	failed := e.it.Err() != nil
	err := e.it.Close()
	e.of.open.release(e.of.meta.Handle.ID, e.run, failed || err != nil)
	e.run = nil
	return err
}

// noEntries is an empty Entries.
type noEntries struct{}

func (noEntries) First() bool        { return false }
func (noEntries) SeekGE([]byte) bool { return false }
func (noEntries) Next() bool         { return false }
func (noEntries) Key() []byte        { return nil }
func (noEntries) Value() []byte      { return nil }
func (noEntries) Err() error         { return nil }
func (noEntries) Close() error       { return nil }
