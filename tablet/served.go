package tablet

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// Ref names a tablet by the key of its METADATA row. The upper tablet of a split or a merge keeps
// its Ref. Tablet ids are for logs and users only: the lock service assigns them, and may assign
// one again after losing its last writes.
type Ref struct {
	Table uint64 // the table's id
	End   string // the tablet's last possible row; empty means no end
}

// String formats the table and the end for errors and logs.
func (r Ref) String() string {
	if r.End == "" {
		return fmt.Sprintf("tablet of table %d to its last row", r.Table)
	}
	return fmt.Sprintf("tablet of table %d to row %.64q", r.Table, r.End)
}

// Ref returns the name of the tablet that m describes.
func (m *Meta) Ref() Ref { return Ref{m.Table, string(m.End)} }

// Ref returns the tablet's name.
func (l *Loaded) Ref() Ref { return Ref{l.Table, string(l.End)} }

func (t *Tablet) ref() Ref { return Ref{t.table, string(t.end)} }

// find returns the tablet of that name, or nil if it is not served.
func (s *Server) find(r Ref) *Tablet {
	for _, sv := range *s.tables.Load() {
		if sv.id != r.Table {
			continue
		}
		at, ok := slices.BinarySearchFunc(sv.tablets, []byte(r.End), func(t *Tablet, end []byte) int { return compareEnds(t.end, end) })
		if ok {
			return sv.tablets[at]
		}
	}
	return nil
}

// tablet returns the tablet of that name. The error is api.ErrNotServing or ErrSplitPending.
func (s *Server) tablet(r Ref) (*Tablet, error) {
	if t := s.find(r); t != nil {
		return t, nil
	}
	if s.SplitPending(r) {
		return nil, fmt.Errorf("%v: %w", r, ErrSplitPending)
	}
	return nil, fmt.Errorf("%v: %w", r, api.ErrNotServing)
}

// Has reports whether the server has the tablet of that name.
func (s *Server) Has(r Ref) bool { return s.find(r) != nil }

// SplitPending reports whether a tablet is being split off: Metadata may have it, but it is not served
// by its name yet.
func (s *Server) SplitPending(r Ref) bool {
	s.tablesMu.Lock()
	defer s.tablesMu.Unlock()
	return s.splitPending[r]
}

// setSplitPending records whether a tablet is being split off.
func (s *Server) setSplitPending(r Ref, is bool) {
	s.tablesMu.Lock()
	defer s.tablesMu.Unlock()
	if is {
		s.splitPending[r] = true
	} else {
		delete(s.splitPending, r)
	}
}

// Loaded summarizes a tablet that a server has.
type Loaded struct {
	ID, Table uint64
	End       []byte
	Bytes     int64   // of its files
	Load      float64 // operations a second
}

// Loaded returns the server's tablets.
func (s *Server) Loaded() []Loaded {
	var all []Loaded
	for _, sv := range *s.tables.Load() {
		for _, t := range sv.tablets {
			all = append(all, Loaded{ID: t.id, Table: sv.id, End: t.end, Bytes: t.bytes(), Load: float64(t.load.rate.Load())})
		}
	}
	return all
}

// Tables returns the ids of the tables of which the server has tablets, by name.
func (s *Server) Tables() map[string]uint64 {
	tables := map[string]uint64{}
	for name, sv := range *s.tables.Load() {
		tables[name] = sv.id
	}
	return tables
}

// Schema returns the schema with which a table is served here, or nil if it is not. An Access is
// called with it unless it is changed meanwhile.
func (s *Server) Schema(tableName string) *table.Schema {
	sv := (*s.tables.Load())[tableName]
	if sv == nil || len(sv.tablets) == 0 {
		return nil
	}
	return sv.tablets[0].schema.Load().table
}

// Overlaps reports whether the server has rows of a table above start and up to end; an empty end
// means no bound.
func (s *Server) Overlaps(tableID uint64, start, end []byte) bool {
	for _, sv := range *s.tables.Load() {
		if sv.id == tableID && slices.ContainsFunc(sv.tablets, func(t *Tablet) bool {
			return (len(t.end) == 0 || string(t.end) > string(start)) && (len(end) == 0 || string(t.start) < string(end))
		}) {
			return true
		}
	}
	return false
}
