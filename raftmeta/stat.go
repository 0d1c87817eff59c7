package raftmeta

import (
	"strings"

	"github.com/steledb/stele/raftmeta/api"
)

// statHoldersMax bounds the holders in a Stat.
const statHoldersMax = 16

// nodeView is a node, and some of the holders of its lock.
type nodeView struct {
	node    *node
	holders []api.SessionID
}

// viewOf returns the node at path, or nil.
func viewOf(ns *namespace, path string) *nodeView {
	n := ns.get(path)
	if n == nil {
		return nil
	}
	return view(ns, n)
}

func view(ns *namespace, n *node) *nodeView {
	v := &nodeView{node: n}
	if n.lock == nil || n.lock.holders == 0 {
		return v
	}
	ns.holders.AscendGreaterOrEqual(holder{path: n.path}, func(h holder) bool {
		if h.path != n.path {
			return false
		}
		v.holders = append(v.holders, h.session)
		return len(v.holders) < statHoldersMax
	})
	return v
}

// stat returns the Stat of a node.
func (v *nodeView) stat() api.Stat {
	n := v.node
	st := api.Stat{
		Path:       n.path,
		Dir:        n.dir,
		Instance:   n.instance,
		Generation: n.generation,
		Ephemeral:  n.ephemeral,
		Bytes:      len(n.data),
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

// file returns a file with a copy of its content. The error is ErrNotFound or ErrIsDirectory.
func (v *nodeView) file() (api.File, error) {
	switch {
	case v == nil:
		return api.File{}, ErrNotFound
	case v.node.dir:
		return api.File{}, ErrIsDirectory
	}
	data := append(make([]byte, 0, len(v.node.data)), v.node.data...)
	return api.File{Stat: v.stat(), Data: data}, nil
}

// children returns the nodes of a directory, in byte order of their names.
func (ns *namespace) children(dir *node) []*nodeView {
	views := make([]*nodeView, 0, dir.children)
	ns.ascend(dir, func(n *node) { views = append(views, view(ns, n)) })
	return views
}

// list returns the names of dir's children in byte order.
func (ns *namespace) list(dir *node) []string {
	names := make([]string, 0, dir.children)
	ns.ascend(dir, func(n *node) { names = append(names, strings.TrimPrefix(n.name(), "/")) })
	return names
}

// ascend calls f with each child of dir, in byte order of their names.
func (ns *namespace) ascend(dir *node, f func(*node)) {
	first := &node{path: dir.path, parentLen: len(dir.path)}
	ns.nodes.AscendGreaterOrEqual(first, func(n *node) bool {
		if n.parent() != dir.path {
			return false
		}
		f(n)
		return true
	})
}
