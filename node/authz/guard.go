package authz

import (
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// Audience is the set of callers, besides nodes, that may call a method. Nodes may call all methods.
type Audience uint8

const (
	// Nodes: no other callers.
	Nodes Audience = iota
	// Strangers: any client, with or without a credential.
	Strangers
	// Known: every principal.
	Known
	// Own: every principal; the method checks rights on its own. All methods for rows do: they pass an Access to the tablet server, which
	// checks each family.
	Own
	// OfTable: principals that may see the table in the first parameter.
	OfTable
	// Right: principals with a right on the cluster.
	Right
	// RightOfTable: principals with a right on the whole table in the first parameter. With acl.Admin the method is a change: it is in
	// the audit log. For methods that write rows see Own: a user may have the right to write some families only.
	RightOfTable
)

// Guard states which callers may call a method.
type Guard struct {
	To    Audience
	Right acl.Rights // of Right and RightOfTable
	// Master has the master's node execute the method, because only that node may write the change.
	Master bool
	// Knows means, with Master, that only the master's node knows the answer. Requests are forwarded in an open cluster, too, in which any node may make changes.
	Knows bool
	// About returns the subject of a change for the audit log (auditsubject.go). Nil: the table.
	About func(c *rpc.Call) string
	// Leader states whether the method needs the lock service's leader.
	Leader LeaderUse
	// SelfAudited means that the method writes its audit record itself.
	SelfAudited bool
}

// change reports whether the method changes the cluster. Changes are logged in the audit log.
func (g *Guard) change() bool { return g.Right == acl.Admin }

// writes reports whether a call may have changed something when it is answered.
func (g *Guard) writes() bool { return g.change() || g.Right == acl.Write }

// LeaderUse states when a method needs the lock service's leader.
type LeaderUse uint8

const (
	// LeaderUnused: the method works without, or waits for it.
	LeaderUnused LeaderUse = iota
	// LeaderFirst: while there is no leader the method fails at once. Otherwise its caller would only learn that the deadline passed.
	LeaderFirst
	// LeaderThroughout: it also is cancelled when the leader is lost. It changes nothing.
	LeaderThroughout
)
