package raftmeta

import (
	"strings"

	"github.com/google/btree"

	"github.com/steledb/stele/raftmeta/api"
)

// AnyGeneration, passed to Set or Delete, matches any content generation. For Set it also matches a
// file that does not exist.
const AnyGeneration = api.AnyGeneration

// Limits of the namespace, which is in the memory of every voter and in each snapshot. The state
// machine enforces them. They are part of the command format, because every voter must compute the
// same result.
const (
	// FileBytesMax bounds the content of a file.
	FileBytesMax = api.FileBytesMax
	// NamespaceBytesMax bounds the sum of paths, contents and ACL names of all nodes.
	NamespaceBytesMax = 1 << 30
	// NodesMax bounds the number of files and directories.
	NodesMax = 4 << 20
)

// Values of TooLargeError.What.
const (
	limitFile  = api.LimitFile
	limitBytes = api.LimitBytes
	limitNodes = api.LimitNodes
)

// node is a file or a directory. It is immutable once it is in a namespace: a change replaces it,
// so that snapshots can share nodes.
type node struct {
	path string
	// parentLen is the length of the prefix of path that is the parent's path.
	parentLen int
	dir       bool
	// instance is the raft index that created the node: larger than that of any earlier node at the
	// path.
	instance uint64
	// generation is the raft index that last changed the content of a file, or the set of children
	// of a directory.
	generation uint64
	// children is the number of children of a directory.
	children int
	// data is the content of a file. It is never modified.
	data []byte
	// ephemeral is the session with which the file is deleted, zero for a permanent file.
	ephemeral api.SessionID
	// owner is the user whose quota is charged for the node: the one that last wrote it or set its
	// ACL. Empty for the cluster.
	owner string
	// cached is the raft index since which sessions may cache this version of the file, including
	// its ACL; zero if none may.
	cached uint64
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

func newNode(path string) *node {
	n := &node{path: path}
	if dir, _ := split(path); dir != "" {
		n.parentLen = len(dir)
	}
	return n
}

// parent returns the path of n's directory, empty for the root.
func (n *node) parent() string { return n.path[:n.parentLen] }

// name returns the name of n in its parent, with a leading slash unless the parent is the root.
// Among the children of one directory it sorts as the bare name does.
func (n *node) name() string { return n.path[n.parentLen:] }

// nodeLess orders nodes by directory, then name. The children of a directory are adjacent, whatever
// subtrees they have, and each directory precedes its children.
func nodeLess(a, b *node) bool {
	if c := strings.Compare(a.parent(), b.parent()); c != 0 {
		return c < 0
	}
	return a.name() < b.name()
}

// namespace is the tree of nodes, with the sessions and their holds. It is not safe for concurrent
// use. A clone is independent of its original.
type namespace struct {
	nodes *btree.BTreeG[*node]
	// bytes is the sum of size over all nodes except the root.
	bytes int64
	files int

	sessions *btree.BTreeG[*sessionState]
	// holds has the holds of each session, holders the locks among them by path.
	holds   *btree.BTreeG[hold]
	holders *btree.BTreeG[holder]
	// delayed has the paths of locks in their lock-delay.
	delayed *btree.BTreeG[string]

	// usages has the usage of each user, used that of all users together.
	usages *btree.BTreeG[*usage]
	used   usage

	// emit, if not nil, is called with each change.
	emit func(change)
}

// treeDegree is an estimate at which a tree node's pointers fit into a few cache lines.
const treeDegree = 32

func newNamespace() *namespace {
	ns := &namespace{
		nodes:    btree.NewG(treeDegree, nodeLess),
		sessions: btree.NewG(treeDegree, sessionLess),
		holds:    btree.NewG(treeDegree, holdLess),
		holders:  btree.NewG(treeDegree, holderLess),
		delayed:  btree.NewG(treeDegree, func(a, b string) bool { return a < b }),
		usages:   btree.NewG(treeDegree, usageLess),
	}
	r := newNode(root)
	r.dir = true
	ns.nodes.ReplaceOrInsert(r)
	return ns
}

// clone returns a copy of ns without emit. It takes constant time: nodes are shared, and the trees
// are copied on write.
func (ns *namespace) clone() *namespace {
	c := *ns
	c.emit = nil
	c.nodes = ns.nodes.Clone()
	c.sessions = ns.sessions.Clone()
	c.holds = ns.holds.Clone()
	c.holders = ns.holders.Clone()
	c.delayed = ns.delayed.Clone()
	c.usages = ns.usages.Clone()
	return &c
}

// size returns the bytes that n counts for in namespace.bytes.
func (n *node) size() int64 {
	size := int64(len(n.path) + len(n.data))
	if n.acl != nil {
		size += int64(len(n.acl.name))
	}
	return size
}

// get returns the node at path, or nil.
func (ns *namespace) get(path string) *node {
	probe := node{path: path}
	if dir, _ := split(path); dir != "" {
		probe.parentLen = len(dir)
	}
	n, _ := ns.nodes.Get(&probe)
	return n
}
