package metadata

import (
	"time"

	"github.com/steledb/stele/table"
)

// eventsKept is how many events each row keeps.
const eventsKept = 64

// goneKept is how long a row that was removed cannot be made by a change from before: longer than any server may
// be stopped and then go on with one.
//
// The clock that judges it is that of METADATA's server, now and when the row was removed. What the note keeps out is a
// change that was sent before: its sender found its lease good then, and gives a change of unknown fate up, or looks at
// METADATA again, when its time is up by the monotonic clock: minutes. So a clock that jumps by hours takes hours off a
// week, and only one that jumps forward by all of it, while a server stands still between that check and sending, leaves
// a row unprotected. For that the note would have to be kept for ever, for each place where tablets were ever merged.
const goneKept = 7 * 24 * time.Hour

// FamilyOfPlaces is the family that tells where tablets are.
const FamilyOfPlaces = familyLoc

// Schema returns METADATA's schema: where tablets are is a locality group of its own, in memory, since
// that is what clients ask for (paper §5.1 and §6).
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
	must(s.AddFamily(table.Family{Name: familyEvent, GC: table.MaxVersions(eventsKept), Group: "files"}))
	must(s.AddFamily(table.Family{Name: familyGone, GC: table.Union(table.MaxVersions(1), table.MaxAge(goneKept)), Group: "files"}))
	return s
}

// Rows passes all that a Row has: of rows that are gone it passes nothing.
func Rows() table.Filter { return table.FamilyRegex(familyLoc + "|" + familyFiles + "|" + familyLog) }

// RowsWithEvents passes that and what happened to the tablets.
func RowsWithEvents() table.Filter {
	return table.FamilyRegex(familyLoc + "|" + familyFiles + "|" + familyLog + "|" + familyEvent)
}

// Places passes what tells where tablets are and what they wait for, and not what they consist of.
func Places() table.Filter { return table.FamilyRegex(familyLoc + "|" + familyLog) }

// Locations passes what tells where tablets are, and nothing that is not in memory.
func Locations() table.Filter { return table.FamilyRegex(familyLoc) }
