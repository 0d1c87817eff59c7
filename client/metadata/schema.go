package metadata

import (
	"time"

	"github.com/steledb/stele/table"
)

// eventsMax is the number of events kept in a row.
const eventsMax = 64

// goneAgeMax is how long gone:generation of a removed row is kept. During it, a delayed change
// cannot recreate the row. It must exceed the time for which a server can be stopped and then send
// such a change.
//
// The age is measured by the clock of METADATA's server. A delayed change was sent while its sender
// found its lease valid. The sender stops, or reads METADATA again, when the timeout of a change
// expires by its monotonic clock: within minutes. A clock that jumps by hours therefore only
// shortens the week by hours. The row is unprotected only if a clock jumps forward by the whole
// week while a server is stopped between that check and sending. Closing this gap would need a
// permanent cell for each merge boundary ever used.
const goneAgeMax = 7 * 24 * time.Hour

// LocationFamily is the family with the locations of tablets.
const LocationFamily = familyLoc

// Schema returns METADATA's schema. Locations are a locality group of their own, in memory, since
// clients read them (paper §5.1 and §6).
func Schema() *table.Schema {
	s := table.NewSchema(Name, TableID)
	must := func(next *table.Schema, err error) {
		if err != nil {
			panic("BUG: schema of METADATA: " + err.Error())
		}
		s = next
	}
	must(s.SetGroup(table.LocalityGroup{Name: "location", InMemory: true, BlockBytes: 8 << 10}))
	must(s.SetGroup(table.LocalityGroup{Name: "files"}))
	must(s.AddFamily(table.Family{Name: familyLoc, GC: table.MaxVersions(1), Group: "location"}))
	must(s.AddFamily(table.Family{Name: familyFiles, GC: table.MaxVersions(1), Group: "files"}))
	must(s.AddFamily(table.Family{Name: familyLog, GC: table.MaxVersions(1), Group: "files"}))
	must(s.AddFamily(table.Family{Name: familyEvent, GC: table.MaxVersions(eventsMax), Group: "files"}))
	must(s.AddFamily(table.Family{Name: familyGone, GC: table.Union(table.MaxVersions(1), table.MaxAge(goneAgeMax)), Group: "files"}))
	return s
}

// Rows passes the columns of a Row. It passes nothing of removed rows.
func Rows() table.Filter { return table.FamilyRegex(familyLoc + "|" + familyFiles + "|" + familyLog) }

// RowsWithEvents passes the columns of a Row and its events.
func RowsWithEvents() table.Filter {
	return table.FamilyRegex(familyLoc + "|" + familyFiles + "|" + familyLog + "|" + familyEvent)
}

// Places passes the locations of tablets and their recoveries, but not their files.
func Places() table.Filter { return table.FamilyRegex(familyLoc + "|" + familyLog) }

// Locations passes the locations of tablets only, which are in memory.
func Locations() table.Filter { return table.FamilyRegex(familyLoc) }
