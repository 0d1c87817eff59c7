package authz

import (
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// auditSubject returns the subject of a change for the audit log.
func (g *Guard) auditSubject(c *rpc.Call) string {
	switch {
	case !g.change() || g.SelfAudited:
		return ""
	case g.About != nil:
		return g.About(c)
	case g.To == RightOfTable:
		return firstName(c, "table ")
	}
	return ""
}

// firstName returns the name in the first parameter, after word.
func firstName(c *rpc.Call, word string) string {
	d := c.Params
	if name := d.Str(); d.Err() == nil && name != "" {
		return word + name
	}
	return ""
}

// Named is for changes whose subject is named by the first parameter.
func Named(what string) func(*rpc.Call) string {
	return func(c *rpc.Call) string { return firstName(c, what+" ") }
}

// Always is for changes that always have the same subject.
func Always(what string) func(*rpc.Call) string {
	return func(*rpc.Call) string { return what }
}

// Rotated returns the key that is replaced: the authority's or that of gossip.
func Rotated(c *rpc.Call) string {
	var r api.RotateAuthorityRequest
	d := c.Params
	if err := r.Decode(&d, c.NumParams); err == nil && r.GossipKey {
		return "the gossip key"
	}
	return "the authority"
}

// TableRenamed returns both names of a table.
func TableRenamed(c *rpc.Call) string {
	var r api.NamesRequest
	d := c.Params
	if err := r.Decode(&d, c.NumParams, api.MethodRenameTable, 2); err != nil {
		return firstName(c, "table ")
	}
	return "table " + r.Names[0] + " to " + r.Names[1]
}

// FamilyDropped returns the family in the second parameter.
func FamilyDropped(c *rpc.Call) string {
	var r api.NamesRequest
	d := c.Params
	if err := r.Decode(&d, c.NumParams, api.MethodDropFamily, 2); err != nil {
		return firstName(c, "table ")
	}
	return familyOf(r.Names[0], r.Names[1])
}

// FamilySet returns the family in the second parameter.
func FamilySet(c *rpc.Call) string {
	var r api.SetFamilyRequest
	d := c.Params
	if err := r.Decode(&d, c.NumParams); err != nil {
		return firstName(c, "table ")
	}
	return familyOf(r.Table, r.Family.Name)
}

func familyOf(table, family string) string { return "family " + family + " of table " + table }

// TablesOfBackup returns the tables of a new backup.
func TablesOfBackup(c *rpc.Call) string {
	var r api.CreateBackupRequest
	d := c.Params
	switch err := r.Decode(&d, c.NumParams); {
	case err != nil:
		return ""
	case len(r.Tables) == 0:
		return "all tables"
	case len(r.Tables) == 1:
		return "table " + r.Tables[0]
	}
	return fmt.Sprintf("%d tables, the first is %s", len(r.Tables), r.Tables[0])
}
