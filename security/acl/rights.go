package acl

import (
	"fmt"
	"strings"
)

// Rights is a set of rights. Numbers are stored: append only.
type Rights uint8

// The rights.
const (
	// Read is to get cells.
	Read Rights = 1
	// Write is to change cells.
	Write Rights = 2
	// Admin is to change schemas, tablets and rights. Who may give himself the other
	// two has them: Admin implies Read and Write.
	Admin Rights = 4
	// Monitor is to see how the cluster is: status, metrics and profiles, but no table and
	// no row. It is a right on the cluster alone, and Read implies it there.
	Monitor Rights = 8

	all = Read | Write | Admin | Monitor
)

// implied returns the rights with those that they imply.
func (r Rights) implied() Rights {
	if r&Admin != 0 {
		return r | all
	}
	if r&Read != 0 {
		return r | Monitor
	}
	return r
}

// Has tells whether the set has all of want, or implies them.
func (r Rights) Has(want Rights) bool { return r.implied()&want == want }

var rightNames = []struct {
	right Rights
	name  string
}{{Read, "read"}, {Write, "write"}, {Admin, "admin"}, {Monitor, "monitor"}}

// String returns the names with commas between, such as "read,write", or "none".
func (r Rights) String() string {
	var names []string
	for _, n := range rightNames {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// ParseRights reads names with commas between: read, write, admin and monitor.
func ParseRights(s string) (Rights, error) {
	var r Rights
	for word := range strings.SplitSeq(s, ",") {
		found := false
		for _, n := range rightNames {
			if strings.EqualFold(strings.TrimSpace(word), n.name) {
				r, found = r|n.right, true
			}
		}
		if !found {
			return 0, fmt.Errorf("%q is none of the rights read, write, admin and monitor", word)
		}
	}
	return r, nil
}
