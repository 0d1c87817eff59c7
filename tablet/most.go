package tablet

import "time"

// Most bounds what one Scan looks at, so that it ends though it finds nothing. It
// looks at one row at least, and at whole rows.
type Most struct {
	Rows  int       // rows that are looked at; 0 is no bound
	Until time.Time // about when it ends; zero is no bound

	// Looked is how many rows were looked at, also those of which nothing is left.
	// Nobody may learn that of rows that he may not see: where Partly is set it is 0,
	// Rows is no bound, and the key at which the scan goes on is not for who asked.
	Looked int
	Partly bool // who reads may not see all of the table
	// Table is the id of the table that was scanned; 0 if no tablet of it was found.
	Table uint64
	// Inside tells that a scan which ends with api.ErrNotServing does so in the middle of a tablet, which was there before.
	Inside bool

	begun, late bool
}

// enough tells whether the scan ends before the next row; otherwise it looks at that.
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

// again says that the row at hand will be looked at once more.
func (m *Most) again() {
	if m == nil {
		return
	}
	m.begun = false
	if !m.Partly {
		m.Looked--
	}
}

// over tells whether the time is up: tablets with few rows do not come to look at the clock.
func (m *Most) over() bool {
	if m != nil {
		m.checkTime()
	}
	return m != nil && m.late
}

// checkTime looks at the clock.
func (m *Most) checkTime() {
	m.late = m.late || !m.Until.IsZero() && !time.Now().Before(m.Until)
}
