package acl

import (
	"fmt"
	"strings"
)

// Rights is a set of rights. Values are stored: append only.
type Rights uint8

// The rights.
const (
	// Read allows reading cells.
	Read Rights = 1
	// Write allows changing cells.
	Write Rights = 2
	// Admin allows changing schemas, tablets and rights. It implies Read and Write, because its
	// holder could grant them to itself.
	Admin Rights = 4
	// Monitor allows reading the state of the cluster: status, metrics and profiles, but no table
	// and no row. It exists on the cluster only, where Read implies it.
	Monitor Rights = 8

	all = Read | Write | Admin | Monitor
)

// implied returns r with the rights that it implies added.
func (r Rights) implied() Rights {
	if r&Admin != 0 {
		return r | all
	}
	if r&Read != 0 {
		return r | Monitor
	}
	return r
}

// Has reports whether the set has or implies all of want.
func (r Rights) Has(want Rights) bool { return r.implied()&want == want }

var rightNames = []struct {
	right Rights
	name  string
}{{Read, "read"}, {Write, "write"}, {Admin, "admin"}, {Monitor, "monitor"}}

// String returns the names separated by commas, such as "read,write", or "none".
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

// ParseRights parses names separated by commas: read, write, admin and monitor.
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
			return 0, fmt.Errorf("unknown right %q: expected read, write, admin or monitor", word)
		}
	}
	return r, nil
}
