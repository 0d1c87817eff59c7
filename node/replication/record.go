package replication

import (
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Directories of the lock service: records of replications, and the progress of their tables.
const (
	Dir      = "/replication"
	StateDir = "/replicating"
)

func recordPath(name string) string       { return Dir + "/" + name }
func statePath(name, table string) string { return StateDir + "/" + name + "/" + table }

// record is the content of a replication's file:
//
//	[1, [address…], secret, [table…], paused, rate, by]
type record struct {
	addrs  []string
	secret []byte // credential for the source
	tables []string
	paused bool
	rate   int64
	by     string
}

const (
	recordVersion = 1
	recordValues  = 7
)

func (r *record) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recordValues)
	e.Int(recordVersion)
	appendTexts(e, r.addrs)
	e.Bin(r.secret)
	appendTexts(e, r.tables)
	e.Bool(r.paused)
	e.Int(r.rate)
	e.Str(r.by)
	return append([]byte(nil), e.Bytes()...)
}

func appendTexts(e *wire.Encoder, texts []string) {
	e.Array(len(texts))
	for _, text := range texts {
		e.Str(text)
	}
}

func decodeTexts(d *wire.Decoder, most int) (texts []string) {
	for range d.ArrayMax(most) {
		texts = append(texts, d.Str())
	}
	return texts
}

func decodeRecord(b []byte) (*record, error) {
	d, more, err := wire.BeginRecord(b, "record of a replication", recordVersion, recordValues)
	if err != nil {
		return nil, err
	}
	r := &record{addrs: decodeTexts(&d, api.ReplicationAddrsMax), secret: append([]byte(nil), d.Bytes()...), tables: decodeTexts(&d, api.ReplicationTablesMax)}
	r.paused, r.rate, r.by = d.Bool(), d.Int(), d.Str()
	for range more {
		d.Skip()
	}
	return r, d.Err()
}

// state is the progress of a table:
//
//	[1, copied, row, token, source, time, clears, table]
//
// All changes before the token are made. While rows are copied it is the position before the first of them, and row is the last one.
type state struct {
	copied bool // all rows are copied
	row    []byte
	token  string    // empty: nothing has begun
	source uint64    // id of the source's table
	saved  time.Time // when the token was taken
	clears bool      // all clears since the copy began were made, too; earlier versions left them out
	table  uint64    // id of the table that follows; 0 of an earlier version
}

const (
	stateVersion = 1
	stateValues  = 6
)

func (s *state) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(stateValues + 2)
	e.Int(stateVersion)
	e.Bool(s.copied)
	e.Bin(s.row)
	e.Str(s.token)
	e.Uint(s.source)
	e.Int(s.saved.UnixMicro())
	e.Bool(s.clears)
	e.Uint(s.table)
	return append([]byte(nil), e.Bytes()...)
}

func decodeState(b []byte) (*state, error) {
	d, more, err := wire.BeginRecord(b, "progress of a replication", stateVersion, stateValues)
	if err != nil {
		return nil, err
	}
	s := &state{copied: d.Bool(), row: append([]byte(nil), d.Bytes()...), token: d.Str(), source: d.Uint(), saved: time.UnixMicro(d.Int())}
	if more > 0 {
		s.clears = d.Bool()
	}
	if more > 1 {
		s.table = d.Uint()
	}
	for range more - 2 {
		d.Skip()
	}
	return s, d.Err()
}

// again returns the progress of a table whose rows are to be copied again.
func (s *state) again() *state { return &state{source: s.source, table: s.table} }
