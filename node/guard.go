package node

import (
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// audience is the set of callers, besides nodes, that may call a method. Nodes may call all methods.
type audience uint8

const (
	// nodes: no other callers.
	nodes audience = iota
	// strangers: any client, with or without a credential.
	strangers
	// known: every principal.
	known
	// own: every principal; the method checks rights itself, row by row.
	own
	// ofTable: principals that may see the table in the first parameter.
	ofTable
	// right: principals with a right on the cluster.
	right
	// rightOfTable: principals with a right on the table in the first parameter.
	rightOfTable
)

// guard states who may call a method.
type guard struct {
	to    audience
	right acl.Rights // of right and rightOfTable
	// master has the master's node execute the method, because only that node may write the change.
	master bool
	// about returns the subject of a change for the audit log (auditsubject.go). Nil: the table.
	about func(c *rpc.Call) string
	// tells means that the method writes its audit record itself.
	selfAudited bool
}

// change reports whether the method changes the cluster. Changes are logged in the audit log.
func (g *guard) change() bool { return g.right == acl.Admin }
