package raftmeta

import (
	"strings"

	"github.com/google/btree"

	"github.com/steledb/stele/raftmeta/api"
)

// AnyGeneration, given to Set or Delete, matches any content generation, and
// for Set a file that does not exist.
const AnyGeneration = api.AnyGeneration

// Limits of the namespace. All of it is in the memory of every voter and in
// each snapshot. The state machine enforces them, so they are part of the
// command format: every voter must come to the same verdict.
const (
	// FileBytesMax is the largest file.
	FileBytesMax = api.FileBytesMax
	// NamespaceBytesMax bounds the paths and contents of all nodes together.
	NamespaceBytesMax = 1 << 30
	// NodesMax bounds the number of files and directories.
	NodesMax = 4 << 20
)

// The words that TooLargeError.What takes.
const (
	limitFile  = api.LimitFile
	limitBytes = api.LimitBytes
	limitNodes = api.LimitNodes
)

// node is one file or directory. It never changes once it is in a namespace: a
// change puts a new node in its place, so that snapshots may share them.
type node struct {
	path string
	// parentLen is the length of the parent's part of path.
	parentLen int
	dir       bool
	// instance is the raft index that created the node: larger than that of
	// any node that had the path before.
	instance uint64
	// generation is the raft index that last changed the content of a file,
	// or the set of children of a directory.
	generation uint64
	// children counts those of a directory.
	children int
	// data is the content of a file. It is never written to.
	data []byte
	// ephemeral is the session that a file goes with, zero if it stays.
	ephemeral api.SessionID
	// owner is the user in whose share the node counts: the one who last wrote it or
	// gave it its ACL. Empty for the cluster's.
	owner string
	// cached is the raft index since which sessions may have this version of
	// the file, its ACL included, in their caches; zero when none can.
	cached uint64
	// lock is nil as long as the lock was never held, acl as long as the node
	// has no ACL of its own and never had. Neither is changed, as the node.
	lock *lockState
	acl  *aclState
}

// aclState is a node's ACL name, and the raft index that set it.
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

// parent is the path of the directory that n is in, empty for the root.
func (n *node) parent() string { return n.path[:n.parentLen] }

// name is n's name in its parent, with its slash unless that is the root.
// Among the children of one directory it orders as the bare name does.
func (n *node) name() string { return n.path[n.parentLen:] }

// nodeLess orders nodes by directory and then name: the children of a
// directory are neighbours, whatever stands below them, and each directory
// comes before what is in it.
func nodeLess(a, b *node) bool {
	if c := strings.Compare(a.parent(), b.parent()); c != 0 {
		return c < 0
	}
	return a.name() < b.name()
}

// namespace is the tree of nodes, with the sessions and what they hold. It is
// not safe for concurrent use; a clone is independent of what it was made from.
type namespace struct {
	nodes *btree.BTreeG[*node]
	// bytes sums up size over all nodes, the root left out.
	bytes int64
	files int

	sessions *btree.BTreeG[*sessionState]
	// holds has what each session holds, holders the locks among it by path.
	holds   *btree.BTreeG[hold]
	holders *btree.BTreeG[holder]
	// delayed has the paths of locks in their lock-delay.
	delayed *btree.BTreeG[string]

	// usages has what each user holds, used what all users hold together.
	usages *btree.BTreeG[*usage]
	used   usage

	// emit, if not nil, is told of each change.
	emit func(change)
}

// treeDegree is a guess that fits a node's pointers into a few cache lines.
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

// clone returns a copy of ns that emits nothing. It takes constant time: the
// nodes are shared, and the trees are copied piece by piece as either side
// changes them.
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

// size is what n counts for in namespace.bytes.
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
