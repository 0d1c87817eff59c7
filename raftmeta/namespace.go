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

// namespace is the tree of nodes. It is not safe for concurrent use; a clone
// is independent of what it was made from.
type namespace struct {
	nodes *btree.BTreeG[*node]
	// bytes sums up size over all nodes, the root left out.
	bytes int64
	files int
}

// treeDegree is a guess that fits a node's pointers into a few cache lines.
const treeDegree = 32

func newNamespace() *namespace {
	ns := &namespace{nodes: btree.NewG(treeDegree, nodeLess)}
	r := newNode(root)
	r.dir = true
	ns.nodes.ReplaceOrInsert(r)
	return ns
}

// clone returns a copy of ns. It takes constant time: the nodes are shared,
// and the tree is copied piece by piece as either side changes it.
func (ns *namespace) clone() *namespace {
	c := *ns
	c.nodes = ns.nodes.Clone()
	return &c
}

// size is what n counts for in namespace.bytes.
func (n *node) size() int64 { return int64(len(n.path) + len(n.data)) }

// get returns the node at path, or nil.
func (ns *namespace) get(path string) *node {
	probe := node{path: path}
	if dir, _ := split(path); dir != "" {
		probe.parentLen = len(dir)
	}
	n, _ := ns.nodes.Get(&probe)
	return n
}

// list returns the names of dir's children in byte order.
func (ns *namespace) list(dir *node) []string {
	names := make([]string, 0, dir.children)
	first := &node{path: dir.path, parentLen: len(dir.path)}
	ns.nodes.AscendGreaterOrEqual(first, func(n *node) bool {
		if n.parent() != dir.path {
			return false
		}
		names = append(names, strings.TrimPrefix(n.name(), "/"))
		return true
	})
	return names
}

// code is what came of a command.
type code uint8

const (
	codeDone code = iota
	codeNotFound
	codeGeneration   // result.generation has what was there, zero for nothing
	codeIsDirectory  // result.path is the directory
	codeNotDirectory // result.path is the file
	codeNotEmpty
	codeFileBytes // result.size has what the command wanted, as in the next two
	codeBytes
	codeNodes
	codeBadPath // result.path and result.reason say why
	codeUnknown // not a command of this version; nothing was changed
)

// result is the state machine's answer to a command.
type result struct {
	code       code
	generation uint64
	path       string
	reason     string
	size       int64
}

// set gives the file at path the content data if its generation is gen, and
// makes it, with the directories above it, if gen is zero or AnyGeneration and
// there is none. index is that of the command in the log. ns keeps data.
func (ns *namespace) set(index uint64, path string, data []byte, gen uint64) result {
	if err := checkFile(path); err != nil {
		return result{code: codeBadPath, path: path, reason: err.(*PathError).Reason}
	}
	if len(data) > FileBytesMax {
		return result{code: codeFileBytes, size: int64(len(data))}
	}
	old := ns.get(path)
	if old == nil {
		return ns.create(index, path, data, gen)
	}
	if old.dir {
		return result{code: codeIsDirectory, path: path}
	}
	if gen != AnyGeneration && gen != old.generation {
		return result{code: codeGeneration, path: path, generation: old.generation}
	}
	grown := int64(len(data) - len(old.data))
	if grown > 0 && ns.bytes+grown > NamespaceBytesMax {
		return result{code: codeBytes, size: ns.bytes + grown}
	}
	n := *old
	n.data, n.generation = data, index
	ns.nodes.ReplaceOrInsert(&n)
	ns.bytes += grown
	return result{generation: index}
}

// create is set for a path that has no node.
func (ns *namespace) create(index uint64, path string, data []byte, gen uint64) result {
	// missing holds the directories to make, the deepest first.
	var missing []string
	dir, _ := split(path)
	bytes := int64(len(path) + len(data))
	for ; ; dir, _ = split(dir) {
		n := ns.get(dir)
		if n != nil && !n.dir {
			return result{code: codeNotDirectory, path: dir}
		}
		if n != nil {
			break
		}
		missing = append(missing, dir)
		bytes += int64(len(dir))
	}
	if gen != AnyGeneration && gen != 0 {
		return result{code: codeGeneration, path: path}
	}
	if ns.bytes+bytes > NamespaceBytesMax {
		return result{code: codeBytes, size: ns.bytes + bytes}
	}
	if nodes := ns.nodes.Len() + len(missing) + 1; nodes > NodesMax {
		return result{code: codeNodes, size: int64(nodes)}
	}
	for i := len(missing) - 1; i >= 0; i-- {
		d := newNode(missing[i])
		d.dir = true
		ns.add(index, d)
	}
	n := newNode(path)
	n.data = data
	ns.add(index, n)
	return result{generation: index}
}

// add puts a new node under its parent, which must be there.
func (ns *namespace) add(index uint64, n *node) {
	n.instance, n.generation = index, index
	ns.nodes.ReplaceOrInsert(n)
	ns.bytes += n.size()
	if !n.dir {
		ns.files++
	}
	ns.touch(index, n.parent(), 1)
}

// touch records in a directory that children were added or removed.
func (ns *namespace) touch(index uint64, dir string, children int) {
	d := *ns.get(dir)
	d.generation = index
	d.children += children
	ns.nodes.ReplaceOrInsert(&d)
}

// remove deletes the file or empty directory at path if its generation is gen.
func (ns *namespace) remove(index uint64, path string, gen uint64) result {
	if err := checkFile(path); err != nil {
		return result{code: codeBadPath, path: path, reason: err.(*PathError).Reason}
	}
	n := ns.get(path)
	switch {
	case n == nil && (gen == AnyGeneration || gen == 0):
		return result{code: codeNotFound, path: path}
	case n == nil:
		return result{code: codeGeneration, path: path}
	case gen != AnyGeneration && gen != n.generation:
		return result{code: codeGeneration, path: path, generation: n.generation}
	case n.children > 0:
		return result{code: codeNotEmpty, path: path}
	}
	ns.nodes.Delete(n)
	ns.bytes -= n.size()
	if !n.dir {
		ns.files--
	}
	ns.touch(index, n.parent(), -1)
	return result{generation: n.generation}
}

// error turns a result into what the caller of op on path sees, with want the
// generation it gave.
func (r result) error(want uint64) error {
	switch r.code {
	case codeDone:
		return nil
	case codeNotFound:
		return ErrNotFound
	case codeGeneration:
		return &GenerationError{Path: r.path, Want: want, Got: r.generation}
	case codeIsDirectory:
		return ErrIsDirectory
	case codeNotDirectory:
		return &nodeError{r.path, ErrNotDirectory}
	case codeNotEmpty:
		return ErrNotEmpty
	case codeFileBytes:
		return &TooLargeError{limitFile, FileBytesMax, r.size}
	case codeBytes:
		return &TooLargeError{limitBytes, NamespaceBytesMax, r.size}
	case codeNodes:
		return &TooLargeError{limitNodes, NodesMax, r.size}
	case codeBadPath:
		return &PathError{r.path, r.reason}
	}
	return errUnknownCommand
}
