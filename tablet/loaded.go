package tablet

import (
	"slices"

	"github.com/steledb/stele/table"
)

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
