package tablet

import "time"

// Most bounds the work of one Scan, which may end without a result. A scan reads at least one row,
// and whole rows only.
type Most struct {
	Rows  int       // rows read; 0 means no bound
	Until time.Time // approximate deadline; zero means no bound

	// Looked is the number of rows read, including those without a result. A caller must not learn
	// the number of rows that it may not see. If Partly is set, Looked is 0, Rows does not apply,
	// and the key to resume at must not be sent to the caller.
	Looked int
	Partly bool // the caller may not see the whole table
	// Table is the id of the scanned table; 0 if no tablet of it was found.
	Table uint64
	// Inside is set if a scan that ended with api.ErrNotServing did so inside a tablet that was
	// served before.
	Inside bool

	begun, late bool
}

// enough reports whether the scan ends before the next row. Otherwise it counts that row.
func (m *Most) enough() bool {
	if m.begun && (m.late || m.Rows > 0 && m.Looked >= m.Rows) {
		return true
	}
	m.begun = true
	if !m.Partly {
		m.Looked++
	}
	return false
}

// again uncounts the current row, which will be read again.
func (m *Most) again() {
	if m == nil {
		return
	}
	m.begun = false
	if !m.Partly {
		m.Looked--
	}
}

// over reports whether the deadline has passed. It reads the clock, since tablets with few rows
// never reach checkTime otherwise.
func (m *Most) over() bool {
	if m != nil {
		m.checkTime()
	}
	return m != nil && m.late
}

// checkTime reads the clock.
func (m *Most) checkTime() {
	m.late = m.late || !m.Until.IsZero() && !time.Now().Before(m.Until)
}
