package raftmeta

import (
	"github.com/steledb/stele/raftmeta/api"
)

// set writes c.data to the file at c.path if its generation is c.generation. It creates the file
// and missing parent directories if c.generation is zero or AnyGeneration. index is that of the
// command in the log. ns retains c.data.
func (ns *namespace) set(index uint64, c *command) result {
	if err := checkFile(c.path); err != nil {
		return badPath(c.path, err)
	}
	if len(c.data) > FileBytesMax {
		return result{code: codeFileBytes, size: int64(len(c.data))}
	}
	if r := ns.allowed(c); r.code != codeDone {
		return r
	}
	old := ns.get(c.path)
	if old == nil {
		return ns.create(index, c)
	}
	if old.dir {
		return result{code: codeIsDirectory, path: c.path}
	}
	if c.generation != AnyGeneration && c.generation != old.generation {
		return result{code: codeGeneration, path: c.path, generation: old.generation}
	}
	if c.ephemeral != (old.ephemeral != 0) || c.ephemeral && old.ephemeral != c.session {
		return result{code: codeEphemeral, path: c.path}
	}
	grown := int64(len(c.data) - len(old.data))
	if grown > 0 && ns.bytes+grown > NamespaceBytesMax {
		return result{code: codeBytes, size: ns.bytes + grown}
	}
	if r := ns.checkQuota(c); r.code != codeDone {
		return r
	}
	n := *old
	n.data, n.generation, n.cached = c.data, index, 0
	ns.replace(old, &n, c)
	ns.bytes += grown
	ns.notify(change{kind: contentsChanged, index: index, path: n.path})
	return result{generation: index}
}

// replace replaces old by n, which c has changed, and charges n to the quota of c.
func (ns *namespace) replace(old, n *node, c *command) {
	if n.path != root {
		n.owner = c.owner()
	}
	ns.nodes.ReplaceOrInsert(n)
	ns.charge(old.owner, -old.charged(), 0)
	ns.charge(n.owner, n.charged(), 0)
}

// allowed checks the conditions of a change beside its compare-and-set: its session must exist, and
// its sequencer must be valid.
func (ns *namespace) allowed(c *command) result {
	if c.session != 0 && ns.session(c.session) == nil || c.ephemeral && c.session == 0 {
		return result{code: codeNoSession}
	}
	if c.guard.Path != "" && !ns.valid(c.guard) {
		return result{code: codeStale}
	}
	return result{}
}

// create creates the file of a command, whose path has no node.
func (ns *namespace) create(index uint64, c *command) result {
	// missing has the directories to create, the deepest first.
	var missing []string
	dir, _ := split(c.path)
	bytes := int64(len(c.path) + len(c.data))
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
	if c.generation != AnyGeneration && c.generation != 0 {
		return result{code: codeGeneration, path: c.path}
	}
	if ns.bytes+bytes > NamespaceBytesMax {
		return result{code: codeBytes, size: ns.bytes + bytes}
	}
	if nodes := ns.nodes.Len() + len(missing) + 1; nodes > NodesMax {
		return result{code: codeNodes, size: int64(nodes)}
	}
	if r := ns.checkQuota(c); r.code != codeDone {
		return r
	}
	n := newNode(c.path)
	n.data, n.owner = c.data, c.owner()
	if c.ephemeral {
		if r := ns.hold(hold{session: c.session, path: n.path, since: index}); r.code != codeDone {
			return r
		}
		n.ephemeral = c.session
	}
	for i := len(missing) - 1; i >= 0; i-- {
		d := newNode(missing[i])
		d.dir, d.owner = true, c.owner()
		ns.add(index, d)
	}
	ns.add(index, n)
	return result{generation: index, instance: index}
}

// add adds a new node to its parent, which must exist.
func (ns *namespace) add(index uint64, n *node) {
	n.instance, n.generation = index, index
	ns.nodes.ReplaceOrInsert(n)
	ns.bytes += n.size()
	ns.charge(n.owner, n.charged(), 0)
	if !n.dir {
		ns.files++
		ns.notify(change{kind: contentsChanged, index: index, path: n.path})
	}
	ns.touch(index, n.parent(), 1)
	ns.notify(change{kind: childAdded, index: index, path: n.parent(), name: n.name()})
}

// touch records that children were added to a directory, or removed if children is negative.
func (ns *namespace) touch(index uint64, dir string, children int) {
	d := *ns.get(dir)
	d.generation = index
	d.children += children
	ns.nodes.ReplaceOrInsert(&d)
}

// remove deletes the file or empty directory at c.path if its generation is c.generation, and its
// lock is free or held only by c.session.
func (ns *namespace) remove(index uint64, c *command) result {
	if err := checkFile(c.path); err != nil {
		return badPath(c.path, err)
	}
	if r := ns.allowed(c); r.code != codeDone {
		return r
	}
	n, gen := ns.get(c.path), c.generation
	switch {
	case n == nil && (gen == AnyGeneration || gen == 0):
		return result{code: codeNotFound, path: c.path}
	case n == nil:
		return result{code: codeGeneration, path: c.path}
	case gen != AnyGeneration && gen != n.generation:
		return result{code: codeGeneration, path: c.path, generation: n.generation}
	case n.children > 0:
		return result{code: codeNotEmpty, path: c.path}
	case n.lock != nil && n.lock.delay != 0:
		return ns.locked(n)
	case n.lock != nil && n.lock.holders > 0:
		h, own := ns.holds.Get(hold{session: c.session, path: n.path})
		if !own || n.lock.holders > 1 {
			return ns.locked(n)
		}
		ns.unlock(index, h, false)
		n = ns.get(c.path)
	}
	if n.ephemeral != 0 {
		ns.unhold(hold{session: n.ephemeral, path: n.path})
	}
	ns.drop(index, n)
	return result{generation: n.generation}
}

// drop deletes a node without children.
func (ns *namespace) drop(index uint64, n *node) {
	ns.nodes.Delete(n)
	ns.bytes -= n.size()
	ns.charge(n.owner, -n.charged(), 0)
	if !n.dir {
		ns.files--
		ns.notify(change{kind: contentsChanged, index: index, path: n.path})
	}
	ns.touch(index, n.parent(), -1)
	ns.notify(change{kind: childRemoved, index: index, path: n.parent(), name: n.name()})
}

// setACL sets the ACL of the node at c.path to c.name.
func (ns *namespace) setACL(index uint64, c *command) result {
	if err := checkDir(c.path); err != nil {
		return badPath(c.path, err)
	}
	if len(c.name) > api.ACLBytesMax {
		return result{code: codeACLBytes, size: int64(len(c.name))}
	}
	if r := ns.allowed(c); r.code != codeDone {
		return r
	}
	old := ns.get(c.path)
	if old == nil {
		return result{code: codeNotFound, path: c.path}
	}
	n := *old
	n.acl = &aclState{c.name, index}
	n.cached = 0
	grown := n.size() - old.size()
	if n.path == root {
		grown = 0 // the root is not counted
	}
	if grown > 0 && ns.bytes+grown > NamespaceBytesMax {
		return result{code: codeBytes, size: ns.bytes + grown}
	}
	if r := ns.checkQuota(c); r.code != codeDone {
		return r
	}
	ns.replace(old, &n, c)
	ns.bytes += grown
	ns.notify(change{kind: aclChanged, index: index, path: n.path})
	return result{generation: index}
}

// markCached records that sessions may cache the file at c.path, if it still has the generation
// c.generation.
func (ns *namespace) markCached(index uint64, c *command) result {
	old := ns.get(c.path)
	switch {
	case old == nil || old.dir:
		return result{code: codeNotFound, path: c.path}
	case old.generation != c.generation:
		return result{code: codeGeneration, path: c.path, generation: old.generation}
	case old.cached != 0:
		return result{}
	}
	n := *old
	n.cached = index
	ns.nodes.ReplaceOrInsert(&n)
	return result{}
}
