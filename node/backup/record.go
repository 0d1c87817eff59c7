package backup

import (
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Dir is the directory of the lock service with the records of backups.
const Dir = "/backups"

// Path returns the path of a backup's record.
func Path(id string) string { return Dir + "/" + id }

// State is the state of a backup.
type State uint8

// States of a backup.
const (
	Making State = iota + 1 // the master works on it
	Made                    // it can be restored
	Failed                  // it holds nothing
)

func (s State) String() string {
	if s < Making || s > Failed {
		return fmt.Sprintf("state %d", uint8(s))
	}
	return [...]string{"making", "made", "failed"}[s-Making]
}

// Record is the content of a backup's file.
type Record struct {
	State    State
	Created  time.Time
	Ended    time.Time // when it was made or failed; zero while it is being made
	Expires  time.Time // zero: never
	By       string    // the user who asked for it; empty on an open cluster
	Error    string    // why it failed, or why the last attempt did
	Tables   []string  // their names when it was made
	Tablets  int64
	Bytes    int64         // of the tablets' files
	Manifest blobfs.Handle // if it is made
}

const (
	recordVersion = 1
	recordValues  = 11
)

// Encode encodes the record.
func (r *Record) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recordValues)
	e.Uint(recordVersion)
	e.Uint(uint64(r.State))
	for _, t := range []time.Time{r.Created, r.Ended, r.Expires} {
		if t.IsZero() {
			e.Int(0)
		} else {
			e.Int(t.UnixMilli())
		}
	}
	e.Str(r.By)
	e.Str(r.Error)
	e.Array(len(r.Tables))
	for _, name := range r.Tables {
		e.Str(name)
	}
	e.Int(r.Tablets)
	e.Int(r.Bytes)
	if r.State == Made {
		blobfs.AppendHandle(e, r.Manifest)
	} else {
		e.Nil()
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeRecord decodes what Encode returned.
func DecodeRecord(b []byte) (*Record, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("record of a backup: %d of %d bytes are a message: %v", n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if v := d.Uint(); d.Err() == nil && (v != recordVersion || n < recordValues) {
		return nil, fmt.Errorf("record of a backup: %d values of version %d, want at least %d of version %d", n, v, recordValues, recordVersion)
	}
	r := &Record{State: State(d.Uint())}
	for _, t := range []*time.Time{&r.Created, &r.Ended, &r.Expires} {
		if ms := d.Int(); ms != 0 {
			*t = time.UnixMilli(ms)
		}
	}
	r.By, r.Error = d.Str(), d.Str()
	for range d.ArrayMax(api.BackupTablesMax) {
		r.Tables = append(r.Tables, d.Str())
	}
	r.Tablets, r.Bytes = d.Int(), d.Int()
	if !d.IsNil() {
		r.Manifest = blobfs.DecodeHandle(&d)
	}
	for range n - recordValues {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("record of a backup: %w", err)
	}
	if r.State < Making || r.State > Failed || r.State == Made && r.Manifest.ID.IsZero() {
		return nil, fmt.Errorf("record of a backup: invalid %v", r.State)
	}
	return r, nil
}
