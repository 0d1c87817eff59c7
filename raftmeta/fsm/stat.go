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

// fileBytes is the charge in a page for a file beside its path and content.
const fileBytes = 128

// ReadPage returns a page of dir's children, without its Index.
func ReadPage(ns *Namespace, dir *Node, o api.DirectoryOptions) api.DirectoryPage {
	p := api.DirectoryPage{Whole: dir.Generation > o.Since}
	bytes := 0
	ascendAfter(ns, dir, o.After, func(n *Node) bool {
		if p.More = bytes >= api.PageBytesMax; p.More {
			return false
		}
		switch {
		case n.Generation > o.Since:
			f := api.File{Stat: viewOf(ns, n).Stat()}
			if !n.Dir {
				f.Data = append(make([]byte, 0, len(n.Data)), n.Data...)
			}
			p.Files = append(p.Files, f)
			bytes += len(n.Data)
		case p.Whole:
			p.Files = append(p.Files, api.File{Stat: api.Stat{Path: n.Path}})
		default:
			return true
		}
		bytes += len(n.Path) + fileBytes
		return true
	})
	return p
}

// ascend calls f with each child of dir, in byte order of their names.
func (ns *Namespace) ascend(dir *Node, f func(*Node)) {
	ascendAfter(ns, dir, "", func(n *Node) bool {
		f(n)
		return true
	})
}

// ascendAfter calls f with each child of dir whose name is larger than after, in byte order of their names, until f returns false.
func ascendAfter(ns *Namespace, dir *Node, after string, f func(*Node) bool) {
	first := &Node{Path: dir.Path, parentLen: len(dir.Path)}
	if after != "" {
		first.Path = strings.TrimSuffix(dir.Path, root) + "/" + after + "\x00"
	}
	ns.nodes.AscendGreaterOrEqual(first, func(n *Node) bool { return n.parent() == dir.Path && f(n) })
}
