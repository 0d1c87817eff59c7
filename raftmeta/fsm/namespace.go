package fsm

import (
	"strings"

	"github.com/google/btree"

	"github.com/steledb/stele/raftmeta/api"
)

// Limits of the namespace, which is in the memory of every voter and in each snapshot. The state
// machine enforces them. They are part of the command format, because every voter must compute the
// same result.
const (
	// NamespaceBytesMax bounds the sum of paths, contents and ACL names of all nodes.
	NamespaceBytesMax = 1 << 30
	// NodesMax bounds the number of files and directories.
	NodesMax = 4 << 20
)

// Node is a file or a directory. It is immutable once it is in a namespace: a change replaces it,
// so that snapshots can share nodes.
type Node struct {
	// Path is the absolute path.
	Path string
	// parentLen is the length of the prefix of path that is the parent's path.
	parentLen int
	// Dir is set for a directory.
	Dir bool
	// instance is the raft index that created the node: larger than that of any earlier node at the
	// path.
	instance uint64
	// Generation is the raft index that last changed the content of a file, or the set of children
	// of a directory.
	Generation uint64
	// children is the number of children of a directory.
	children int
	// removed is the raft index that last removed a child of a directory, or a directory that was at this path before and its
	// children: see api.SetOptions.AbsentSince. Zero if there was none.
	removed uint64
	// Data is the content of a file. It is never modified.
	Data []byte
	// Ephemeral is the session with which the file is deleted, zero for a permanent file.
	Ephemeral api.SessionID
	// owner is the user whose quota is charged for the node: the one that last wrote it or set its
	// ACL. Empty for the cluster.
	owner string
	// Cached is the raft index since which sessions may cache this version of the file, including
	// its ACL; zero if none may.
	Cached uint64
	// lock is nil until the lock is first held, and acl until an ACL is first set. Both are
	// immutable.
	lock *lockState
	acl  *aclState
}

// aclState is the ACL name of a node, and the raft index that set it.
type aclState struct {
	name       string
	generation uint64
}

func newNode(path string) *Node {
	n := &Node{Path: path}
	if dir, _ := split(path); dir != "" {
		n.parentLen = len(dir)
	}
	return n
}

// parent returns the path of n's directory, empty for the root.
func (n *Node) parent() string { return n.Path[:n.parentLen] }

// name returns the name of n in its parent, with a leading slash unless the parent is the root.
// Among the children of one directory it sorts as the bare name does.
func (n *Node) name() string { return n.Path[n.parentLen:] }

// nodeLess orders nodes by directory, then name. The children of a directory are adjacent, whatever
// subtrees they have, and each directory precedes its children.
func nodeLess(a, b *Node) bool {
	if c := strings.Compare(a.parent(), b.parent()); c != 0 {
		return c < 0
	}
	return a.name() < b.name()
}

// Namespace is the tree of nodes, with the sessions and their holds. It is not safe for concurrent
// use. A clone is independent of its original.
type Namespace struct {
	nodes *btree.BTreeG[*Node]
	// bytes is the sum of size over all nodes except the root.
	bytes int64
	files int

	sessions *btree.BTreeG[*Session]
	// holds has the holds of each session, holders the locks among them by path.
	holds   *btree.BTreeG[hold]
	holders *btree.BTreeG[holder]
	// delayed has the paths of locks in their lock-delay.
	delayed *btree.BTreeG[string]

	users ledger

	// emit, if not nil, is called with each change.
	emit func(Change)
}

// treeDegree is an estimate at which a tree node's pointers fit into a few cache lines.
const treeDegree = 32

// NewNamespace returns a namespace that has only the root directory.
func NewNamespace() *Namespace {
	ns := &Namespace{
		nodes:    btree.NewG(treeDegree, nodeLess),
		sessions: btree.NewG(treeDegree, sessionLess),
		holds:    btree.NewG(treeDegree, holdLess),
		holders:  btree.NewG(treeDegree, holderLess),
		delayed:  btree.NewG(treeDegree, func(a, b string) bool { return a < b }),
		users:    newLedger(),
	}
	r := newNode(root)
	r.Dir = true
	ns.nodes.ReplaceOrInsert(r)
	return ns
}

// clone returns a copy of ns without emit. It takes constant time: nodes are shared, and the trees
// are copied on write.
func (ns *Namespace) clone() *Namespace {
	c := *ns
	c.emit = nil
	c.nodes = ns.nodes.Clone()
	c.sessions = ns.sessions.Clone()
	c.holds = ns.holds.Clone()
	c.holders = ns.holders.Clone()
	c.delayed = ns.delayed.Clone()
	c.users = ns.users.clone()
	return &c
}

// Counts is the size of a namespace.
type Counts struct {
	Files, Directories, Sessions int
	Bytes                        int64 // of all paths, contents and ACL names
	// Users is the number of users that hold something. UsersBytes and UsersSessions are their
	// total usage.
	Users                     int
	UsersBytes, UsersSessions int64
}

// Counts returns the size of ns.
func (ns *Namespace) Counts() Counts {
	return Counts{
		Files: ns.files, Directories: ns.nodes.Len() - ns.files, Sessions: ns.sessions.Len(), Bytes: ns.bytes,
		Users: ns.users.usages.Len(), UsersBytes: ns.users.total.Bytes, UsersSessions: ns.users.total.Sessions,
	}
}

// size returns the bytes that n counts for in Namespace.bytes.
func (n *Node) size() int64 {
	size := int64(len(n.Path) + len(n.Data))
	if n.acl != nil {
		size += int64(len(n.acl.name))
	}
	return size
}

// Get returns the node at path, or nil.
func (ns *Namespace) Get(path string) *Node {
	probe := Node{Path: path}
	if dir, _ := split(path); dir != "" {
		probe.parentLen = len(dir)
	}
	n, _ := ns.nodes.Get(&probe)
	return n
}
