package fsm

import (
	"strings"

	"github.com/steledb/stele/raftmeta/api"
)

// statHoldersMax bounds the holders in a Stat.
const statHoldersMax = 16

// NodeView is a node, and some of the holders of its lock.
type NodeView struct {
	Node    *Node
	holders []api.SessionID
}

// Lookup returns the node at path, or nil.
func (ns *Namespace) Lookup(path string) *NodeView {
	n := ns.Get(path)
	if n == nil {
		return nil
	}
	return viewOf(ns, n)
}

func viewOf(ns *Namespace, n *Node) *NodeView {
	v := &NodeView{Node: n}
	if n.lock == nil || n.lock.holders == 0 {
		return v
	}
	ns.holders.AscendGreaterOrEqual(holder{path: n.Path}, func(h holder) bool {
		if h.path != n.Path {
			return false
		}
		v.holders = append(v.holders, h.session)
		return len(v.holders) < statHoldersMax
	})
	return v
}

// Stat returns the Stat of a node.
func (v *NodeView) Stat() api.Stat {
	n := v.Node
	st := api.Stat{
		Path:       n.Path,
		Dir:        n.Dir,
		Instance:   n.instance,
		Generation: n.Generation,
		Ephemeral:  n.Ephemeral,
		Bytes:      len(n.Data),
		Children:   n.children,
		Lock:       n.lock.heldMode(),
		Holders:    v.holders,
	}
	if n.lock != nil {
		st.LockGeneration = n.lock.generation
	}
	if n.acl != nil {
		st.ACL, st.ACLGeneration = n.acl.name, n.acl.generation
	}
	return st
}

// File returns a file with a copy of its content. The error is api.ErrNotFound or api.ErrIsDirectory.
func (v *NodeView) File() (api.File, error) {
	switch {
	case v == nil:
		return api.File{}, api.ErrNotFound
	case v.Node.Dir:
		return api.File{}, api.ErrIsDirectory
	}
	data := append(make([]byte, 0, len(v.Node.Data)), v.Node.Data...)
	return api.File{Stat: v.Stat(), Data: data}, nil
}

// Children returns the nodes of a directory, in byte order of their names.
func (ns *Namespace) Children(dir *Node) []*NodeView {
	views := make([]*NodeView, 0, dir.children)
	ns.ascend(dir, func(n *Node) { views = append(views, viewOf(ns, n)) })
	return views
}

// List returns the names of dir's children in byte order.
func (ns *Namespace) List(dir *Node) []string {
	names := make([]string, 0, dir.children)
	ns.ascend(dir, func(n *Node) { names = append(names, strings.TrimPrefix(n.name(), "/")) })
	return names
}

// ascend calls f with each child of dir, in byte order of their names.
func (ns *Namespace) ascend(dir *Node, f func(*Node)) {
	first := &Node{Path: dir.Path, parentLen: len(dir.Path)}
	ns.nodes.AscendGreaterOrEqual(first, func(n *Node) bool {
		if n.parent() != dir.Path {
			return false
		}
		f(n)
		return true
	})
}
