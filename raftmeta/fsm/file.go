package fsm

import (
	"github.com/steledb/stele/raftmeta/api"
)

// set writes c.data to the file at c.path if its generation is c.generation. It creates the file
// and missing parent directories if c.generation is zero or api.AnyGeneration. index is that of the
// command in the log. ns retains c.data.
func (ns *Namespace) set(index uint64, c *Command) Result {
	if err := CheckFile(c.Path); err != nil {
		return badPath(c.Path, err)
	}
	if len(c.Data) > api.FileBytesMax {
		return Result{Code: CodeFileBytes, size: int64(len(c.Data))}
	}
	if r := ns.allowed(c); r.Code != CodeDone {
		return r
	}
	old := ns.Get(c.Path)
	if c.From != "" && (old == nil || !old.Dir) {
		return rename(ns, index, c)
	}
	if old == nil {
		return ns.create(index, c)
	}
	if old.Dir {
		return Result{Code: CodeIsDirectory, path: c.Path}
	}
	if c.Generation != api.AnyGeneration && c.Generation != old.Generation {
		return Result{Code: CodeGeneration, path: c.Path, Generation: old.Generation}
	}
	if c.Ephemeral != (old.Ephemeral != 0) || c.Ephemeral && old.Ephemeral != c.Session {
		return Result{Code: CodeEphemeral, path: c.Path}
	}
	grown := int64(len(c.Data) - len(old.Data))
	if grown > 0 && ns.bytes+grown > NamespaceBytesMax {
		return Result{Code: CodeBytes, size: ns.bytes + grown}
	}
	if r := ns.CheckQuota(c); r.Code != CodeDone {
		return r
	}
	n := *old
	n.Data, n.Generation, n.Cached = c.Data, index, 0
	ns.replace(old, &n, c)
	ns.bytes += grown
	ns.notify(Change{Kind: ContentsChanged, Index: index, Path: n.Path})
	return Result{Generation: index}
}

// replace replaces old by n, which c has changed, and charges n to the quota of c.
func (ns *Namespace) replace(old, n *Node, c *Command) {
	if n.Path != root {
		n.owner = c.owner()
	}
	ns.nodes.ReplaceOrInsert(n)
	ns.users.charge(old.owner, -old.charged(), 0)
	ns.users.charge(n.owner, n.charged(), 0)
}

// allowed checks the conditions of a change beside its compare-and-set: its session must exist, and
// its sequencer must be valid.
func (ns *Namespace) allowed(c *Command) Result {
	if c.Session != 0 && ns.Session(c.Session) == nil || c.Ephemeral && c.Session == 0 {
		return Result{Code: CodeNoSession}
	}
	if c.Guard.Path != "" && !ns.Valid(c.Guard) {
		return Result{Code: CodeStale}
	}
	return Result{}
}

// create creates the file of a command, whose path has no node.
func (ns *Namespace) create(index uint64, c *Command) Result {
	// missing has the directories to create, the deepest first.
	var missing []string
	var removed uint64
	dir, _ := split(c.Path)
	bytes := int64(len(c.Path) + len(c.Data))
	for ; ; dir, _ = split(dir) {
		n := ns.Get(dir)
		if n != nil && !n.Dir {
			return Result{Code: CodeNotDirectory, path: dir}
		}
		if n != nil {
			removed = n.removed
			break
		}
		missing = append(missing, dir)
		bytes += int64(len(dir))
	}
	if c.Generation != api.AnyGeneration && c.Generation != 0 {
		return Result{Code: CodeGeneration, path: c.Path}
	}
	if c.AbsentSince != 0 && removed > c.AbsentSince {
		return Result{Code: CodeRemoved, path: c.Path, Generation: removed}
	}
	if ns.bytes+bytes > NamespaceBytesMax {
		return Result{Code: CodeBytes, size: ns.bytes + bytes}
	}
	if nodes := ns.nodes.Len() + len(missing) + 1; nodes > NodesMax {
		return Result{Code: CodeNodes, size: int64(nodes)}
	}
	if r := ns.CheckQuota(c); r.Code != CodeDone {
		return r
	}
	n := newNode(c.Path)
	n.Data, n.owner = c.Data, c.owner()
	if c.Ephemeral {
		if r := ns.hold(hold{session: c.Session, path: n.Path, since: index}); r.Code != CodeDone {
			return r
		}
		n.Ephemeral = c.Session
	}
	for i := len(missing) - 1; i >= 0; i-- {
		d := newNode(missing[i])
		d.Dir, d.owner, d.removed = true, c.owner(), removed
		ns.add(index, d)
	}
	ns.add(index, n)
	return Result{Generation: index, Instance: index}
}

// rename creates the file of a command and deletes the file at c.From, in one step: no state of the namespace has both or neither. Both are in one
// directory, and neither the new file nor the old one is ephemeral or locked.
func rename(ns *Namespace, index uint64, c *Command) Result {
	if err := CheckRename(c.Path, c.From); err != nil {
		return badPath(c.From, err)
	}
	if n := ns.Get(c.Path); n != nil || c.Generation != 0 && c.Generation != api.AnyGeneration {
		r := Result{Code: CodeGeneration, path: c.Path}
		if n != nil {
			r.Generation = n.Generation
		}
		return r
	}
	from := ns.Get(c.From)
	switch {
	case from == nil:
		return Result{Code: CodeGeneration, path: c.From}
	case from.Dir:
		return Result{Code: CodeIsDirectory, path: c.From}
	case from.Generation != c.FromGeneration:
		return Result{Code: CodeGeneration, path: c.From, Generation: from.Generation}
	case from.Ephemeral != 0 || c.Ephemeral:
		return Result{Code: CodeEphemeral, path: c.From}
	case from.lock != nil && (from.lock.holders > 0 || from.lock.delay != 0):
		return ns.locked(from)
	}
	r := ns.create(index, c) // before the removal: AbsentSince is about earlier ones
	if r.Code == CodeDone {
		ns.drop(index, from)
	}
	return r
}

// add adds a new node to its parent, which must exist.
func (ns *Namespace) add(index uint64, n *Node) {
	n.instance, n.Generation = index, index
	ns.nodes.ReplaceOrInsert(n)
	ns.bytes += n.size()
	ns.users.charge(n.owner, n.charged(), 0)
	if !n.Dir {
		ns.files++
		ns.notify(Change{Kind: ContentsChanged, Index: index, Path: n.Path})
	}
	ns.touch(index, n.parent(), 1)
	ns.notify(Change{Kind: ChildAdded, Index: index, Path: n.parent(), Name: n.name()})
}

// touch records that children were added to a directory, or removed if children is negative.
func (ns *Namespace) touch(index uint64, dir string, children int) {
	d := *ns.Get(dir)
	d.Generation = index
	d.children += children
	if children < 0 {
		d.removed = index
	}
	ns.nodes.ReplaceOrInsert(&d)
}

// remove deletes the file or empty directory at c.path if its generation is c.generation, and its
// lock is free or held only by c.session.
func (ns *Namespace) remove(index uint64, c *Command) Result {
	if err := CheckFile(c.Path); err != nil {
		return badPath(c.Path, err)
	}
	if r := ns.allowed(c); r.Code != CodeDone {
		return r
	}
	n, gen := ns.Get(c.Path), c.Generation
	switch {
	case n == nil && (gen == api.AnyGeneration || gen == 0):
		return Result{Code: CodeNotFound, path: c.Path}
	case n == nil:
		return Result{Code: CodeGeneration, path: c.Path}
	case gen != api.AnyGeneration && gen != n.Generation:
		return Result{Code: CodeGeneration, path: c.Path, Generation: n.Generation}
	case n.children > 0:
		return Result{Code: CodeNotEmpty, path: c.Path}
	case n.lock != nil && n.lock.delay != 0:
		return ns.locked(n)
	case n.lock != nil && n.lock.holders > 0:
		h, own := ns.holds.Get(hold{session: c.Session, path: n.Path})
		if !own || n.lock.holders > 1 {
			return ns.locked(n)
		}
		ns.unlock(index, h, false)
		n = ns.Get(c.Path)
	}
	if n.Ephemeral != 0 {
		ns.unhold(hold{session: n.Ephemeral, path: n.Path})
	}
	ns.drop(index, n)
	return Result{Generation: n.Generation}
}

// drop deletes a node without children.
func (ns *Namespace) drop(index uint64, n *Node) {
	ns.nodes.Delete(n)
	ns.bytes -= n.size()
	ns.users.charge(n.owner, -n.charged(), 0)
	if !n.Dir {
		ns.files--
		ns.notify(Change{Kind: ContentsChanged, Index: index, Path: n.Path})
	}
	ns.touch(index, n.parent(), -1)
	ns.notify(Change{Kind: ChildRemoved, Index: index, Path: n.parent(), Name: n.name()})
}

// setACL sets the ACL of the node at c.path to c.name.
func (ns *Namespace) setACL(index uint64, c *Command) Result {
	if err := CheckDir(c.Path); err != nil {
		return badPath(c.Path, err)
	}
	if len(c.Name) > api.ACLBytesMax {
		return Result{Code: CodeACLBytes, size: int64(len(c.Name))}
	}
	if r := ns.allowed(c); r.Code != CodeDone {
		return r
	}
	old := ns.Get(c.Path)
	if old == nil {
		return Result{Code: CodeNotFound, path: c.Path}
	}
	n := *old
	n.acl = &aclState{c.Name, index}
	n.Cached = 0
	grown := n.size() - old.size()
	if n.Path == root {
		grown = 0 // the root is not counted
	}
	if grown > 0 && ns.bytes+grown > NamespaceBytesMax {
		return Result{Code: CodeBytes, size: ns.bytes + grown}
	}
	if r := ns.CheckQuota(c); r.Code != CodeDone {
		return r
	}
	ns.replace(old, &n, c)
	ns.bytes += grown
	ns.notify(Change{Kind: ACLChanged, Index: index, Path: n.Path})
	return Result{Generation: index}
}

// markCached records that sessions may cache the file at c.path, if it still has the generation
// c.generation.
func (ns *Namespace) markCached(index uint64, c *Command) Result {
	old := ns.Get(c.Path)
	switch {
	case old == nil || old.Dir:
		return Result{Code: CodeNotFound, path: c.Path}
	case old.Generation != c.Generation:
		return Result{Code: CodeGeneration, path: c.Path, Generation: old.Generation}
	case old.Cached != 0:
		return Result{}
	}
	n := *old
	n.Cached = index
	ns.nodes.ReplaceOrInsert(&n)
	return Result{}
}
