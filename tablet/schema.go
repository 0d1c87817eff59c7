package tablet

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/gcpolicy"
	"github.com/steledb/stele/tablet/ikey"
)

// schema is a table's schema, prepared for the hot paths. It is immutable.
type schema struct {
	table    *table.Schema
	version  Version  // nil: current until SetSchema
	families []family // sorted by name, as in table
	inMemory []string // names of in-memory groups
	hidden   int      // index of the family of positions that no read returns, of a table that follows another one; otherwise -1
}

type family struct {
	table.Family
	index  int
	policy gcpolicy.Policy
}

func newSchema(t *table.Schema, v Version) *schema {
	s := &schema{table: t, version: v, families: make([]family, len(t.Families)), hidden: -1}
	for i := range t.Families {
		s.families[i] = family{Family: t.Families[i], index: i, policy: gcpolicy.New(&t.Families[i])}
		if t.Follows != "" && t.Families[i].Name == table.PositionFamily {
			s.hidden = i
		}
	}
	for i := range t.Groups {
		if t.Groups[i].InMemory {
			s.inMemory = append(s.inMemory, t.Groups[i].Name)
		}
	}
	return s
}

// checkWritable checks that the table accepts changes of a replication, or ordinary ones. Errors: an *api.FollowerError for ordinary changes of a table that follows
// another one, api.ErrNotFollower for other replications, table.ErrReadOnly.
func (s *schema) checkWritable(replication string) error {
	switch {
	case s.table.Follows == replication:
		return table.CheckWritable(s.table)
	case replication != "":
		return fmt.Errorf("table %q: %w", s.table.Name, api.ErrNotFollower)
	}
	return &api.FollowerError{Table: s.table.Name, Replication: s.table.Follows}
}

// tokenKept is how long the cell of an idempotency token is kept: a mutation can be sent until table.TokenWindow after its start time, which may be
// table.TokenAhead after its commit. A minute is for the clocks of servers, which differ when a tablet moves.
const tokenKept = table.TokenWindow + table.TokenAhead + time.Minute

// tokenFamily has the cells of idempotency tokens. It is in no schema: no family of one has its name or its id, so all others see its entries as those of a dropped
// family.
var tokenFamily = newTokenFamily()

func newTokenFamily() *family {
	f := table.Family{Name: "~token", ID: math.MaxUint32, Group: table.DefaultGroup, GC: table.MaxAge(tokenKept)}
	return &family{Family: f, index: -1, policy: gcpolicy.New(&f)}
}

// isTokenFamily reports whether a key's family part is that of tokenFamily.
func isTokenFamily(part []byte) bool {
	return ikey.FamilyID(part) == tokenFamily.ID && string(ikey.FamilyName(part)) == tokenFamily.Name
}

// tokenColumn returns the qualifier of a token's cell. Its size does not depend on that of the token.
func tokenColumn(t *table.Token) []byte {
	sum := sha256.Sum256(t.ID)
	return sum[:16]
}

// keepsInMemory reports whether a locality group is an in-memory group.
func (s *schema) keepsInMemory(group string) bool {
	return len(s.inMemory) > 0 && slices.Contains(s.inMemory, group)
}

// family returns the family of that name, or nil.
func (s *schema) family(name string) *family {
	// Most tables have few families; for up to eight a linear scan is fastest.
	if len(s.families) <= 8 {
		for i := range s.families {
			if s.families[i].Name == name {
				return &s.families[i]
			}
		}
		return nil
	}
	lo, hi := 0, len(s.families)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.families[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.families) && s.families[lo].Name == name {
		return &s.families[lo]
	}
	return nil
}

// familyOf returns the live family of a key's family part. It is nil for a dropped family, even if
// a new one has its name.
func (s *schema) familyOf(name []byte, id uint32) *family {
	f := s.family(string(name)) // no allocation: the string is only compared
	if f == nil || f.ID != id && !planted.On(planted.FamilyReused) {
		return nil
	}
	return f
}

// storedFamily returns the family of a key's family part for compactions, which keep the cells of tokens as well.
func (s *schema) storedFamily(part []byte) *family {
	if isTokenFamily(part) {
		return tokenFamily
	}
	return s.familyOf(ikey.FamilyName(part), ikey.FamilyID(part))
}
