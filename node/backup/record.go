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
	// Replay is what the backup is made of, if it is not made of the present tables. Tables is empty until it is made, so that a version
	// that does not know Replay puts nothing into the backup.
	Replay *Replay
	// Imported means that the backup comes from another cluster, or another time of this one.
	Imported bool
	// Schedule is the name of the schedule that has made it; empty: none.
	Schedule string
}

// Replay describes a backup of one table of another backup, as it was at a later time.
type Replay struct {
	From  string // id of the other backup
	Table string // its name there
	To    int64  // in µs
}

const (
	recordVersion = 1
	recordValues  = 11
	// Values that later versions of this one appended.
	replayValues  = 13
	scheduleAtEnd = 14
)

// Encode encodes the record.
func (r *Record) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(r.values())
	e.Uint(recordVersion)
	e.Uint(uint64(r.State))
	for _, t := range []time.Time{r.Created, r.Ended, r.Expires} {
		e.Int(millis(t))
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
	if r.values() > recordValues {
		r.appendReplay(e)
		e.Bool(r.Imported)
	}
	if r.values() > replayValues {
		e.Str(r.Schedule)
	}
	return append([]byte(nil), e.Bytes()...)
}

// millis returns a time in ms since 1970, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// values returns the number of values that Encode writes.
func (r *Record) values() int {
	if r.Schedule != "" {
		return scheduleAtEnd
	}
	if r.Replay != nil || r.Imported {
		return replayValues
	}
	return recordValues
}

func (r *Record) appendReplay(e *wire.Encoder) {
	if r.Replay == nil {
		e.Nil()
		return
	}
	e.Array(3)
	e.Str(r.Replay.From)
	e.Str(r.Replay.Table)
	e.Int(r.Replay.To)
}

// decodeReplay decodes what follows the manifest in a record of n values.
func (r *Record) decodeReplay(d *wire.Decoder, n int) {
	if n < replayValues {
		for range n - recordValues {
			d.Skip()
		}
		return
	}
	if !d.IsNil() {
		n := d.Array()
		r.Replay = &Replay{From: d.Str(), Table: d.Str(), To: d.Int()}
		for ; n > 3 && d.Err() == nil; n-- {
			d.Skip()
		}
	}
	r.Imported = d.Bool()
	if n > replayValues {
		r.Schedule = d.Str()
	}
	for range n - scheduleAtEnd {
		d.Skip()
	}
}

// DecodeRecord decodes what Encode returned.
func DecodeRecord(b []byte) (*Record, error) {
	d, more, err := wire.BeginRecord(b, "record of a backup", recordVersion, recordValues)
	if err != nil {
		return nil, err
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
	r.decodeReplay(&d, recordValues+more)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("record of a backup: %w", err)
	}
	if r.State < Making || r.State > Failed || r.State == Made && r.Manifest.ID.IsZero() {
		return nil, fmt.Errorf("record of a backup: invalid %v", r.State)
	}
	return r, nil
}
