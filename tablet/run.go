package tablet

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

// RunMeta describes a sorted run. The entries are in an SSTable. Its keys are
//
//	table id (8 bytes, big-endian) | internal key (see ikey)
//
// and its values are those of the log.
type RunMeta struct {
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

// EncodeRun encodes m as the MessagePack array
//
//	[1, entries, raw bytes, max seq, max time, handle or nil]
//
// Later versions append values; readers skip unknown ones.
func EncodeRun(m *RunMeta) []byte {
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

// DecodeRun decodes the result of EncodeRun.
func DecodeRun(b []byte) (RunMeta, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return RunMeta{}, fmt.Errorf("%w: %d of %d bytes are a message: %v", errBadRun, n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if version := d.Uint(); d.Err() == nil && (n < runValues || version != runVersion) {
		return RunMeta{}, fmt.Errorf("%w: version %d with %d values", errBadRun, version, n)
	}
	m := RunMeta{Entries: d.Int(), RawBytes: d.Int(), MaxSeq: d.Uint(), MaxTime: d.Int()}
	if m.Entries == 0 {
		d.Skip()
	} else {
		m.Handle = blobfs.DecodeHandle(&d)
	}
	if err := d.Err(); err != nil {
		return RunMeta{}, fmt.Errorf("%w: %w", errBadRun, err)
	}
	if m.Entries < 0 || m.RawBytes < 0 {
		return RunMeta{}, fmt.Errorf("%w: %d entries, %d bytes", errBadRun, m.Entries, m.RawBytes)
	}
	return m, nil
}

// runsVersion marks the encoding of several runs.
const runsVersion = 2

// EncodeRuns encodes the runs of a piece of a log: a single run like EncodeRun, which all readers
// understand, and several as the MessagePack array
//
//	[2, [run…]]
//
// with each run encoded by EncodeRun.
func EncodeRuns(runs []RunMeta) []byte {
	if len(runs) == 1 {
		return EncodeRun(&runs[0])
	}
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(2)
	e.Uint(runsVersion)
	e.Array(len(runs))
	for i := range runs {
		e.Raw(EncodeRun(&runs[i]))
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeRuns decodes the result of EncodeRuns.
func DecodeRuns(b []byte) (runs []RunMeta, err error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: %d of %d bytes are a message: %v", errBadRun, n, len(b), err)
	}
	d := wire.NewDecoder(b)
	if n := d.Array(); n < 2 || d.Uint() != runsVersion || d.Err() != nil {
		m, err := DecodeRun(b)
		return []RunMeta{m}, err
	}
	for n := d.Array(); n > 0 && d.Err() == nil; n-- {
		m, err := DecodeRun(d.Raw())
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

// sortedRun is a Run written by SortLog.
type sortedRun struct {
	open *OpenRuns
	meta RunMeta
}

func (r *sortedRun) MaxSeq() uint64 { return r.meta.MaxSeq }
func (r *sortedRun) MaxTime() int64 { return r.meta.MaxTime }

// runReadAhead is the read size for runs, in bytes. 256 KiB: a tablet's part of a run may be less,
// and a tablet has one iterator in each of dozens of runs.
const runReadAhead = 256 << 10

// Entries implements Run. Errors: those of the blob, a *sstable.CorruptError.
func (r *sortedRun) Entries(ctx context.Context, table uint64, start, end []byte) (RunEntries, error) {
	if r.meta.Entries == 0 {
		return noEntries{}, nil
	}
	run, err := r.open.acquire(ctx, r.meta.Handle)
	if err != nil {
		return nil, err
	}
	e := &runEntries{of: r, run: run, key: binary.BigEndian.AppendUint64(nil, table)}
	opts := sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: runReadAhead}
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

// runEntries iterates over a table's entries of a run, with the table id removed from their keys.
type runEntries struct {
	of  *sortedRun
	run *openRun // nil once closed
	it  *sstable.Iter
	key []byte // the table's id, and a buffer for the key of a seek
}

const tableIDLen = 8

func (e *runEntries) First() bool { return e.it.First() }
func (e *runEntries) SeekGE(key []byte) bool {
	e.key = append(e.key[:tableIDLen], key...)
	return e.it.SeekGE(e.key)
}
func (e *runEntries) Next() bool    { return e.it.Next() }
func (e *runEntries) Key() []byte   { return e.it.Key()[tableIDLen:] }
func (e *runEntries) Value() []byte { return e.it.Value() }
func (e *runEntries) Err() error    { return e.it.Err() }

func (e *runEntries) Close() error {
	if e.run == nil {
		return nil
	}
	failed := e.it.Err() != nil
	err := e.it.Close()
	e.of.open.release(e.of.meta.Handle.ID, e.run, failed || err != nil)
	e.run = nil
	return err
}

// noEntries is an empty RunEntries.
type noEntries struct{}

func (noEntries) First() bool        { return false }
func (noEntries) SeekGE([]byte) bool { return false }
func (noEntries) Next() bool         { return false }
func (noEntries) Key() []byte        { return nil }
func (noEntries) Value() []byte      { return nil }
func (noEntries) Err() error         { return nil }
func (noEntries) Close() error       { return nil }
