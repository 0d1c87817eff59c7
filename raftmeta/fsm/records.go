package fsm

import (
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
)

func (fw *frameWriter) node(n *Node) {
	e := fw.enc
	plain := n.Ephemeral == 0 && n.Cached == 0 && n.lock == nil && n.acl == nil
	if plain {
		e.Array(6)
		e.Uint(recordNode)
	} else {
		e.Array(14)
		e.Uint(recordExtended)
	}
	e.Str(n.Path)
	e.Bool(n.Dir)
	e.Uint(n.instance)
	e.Uint(n.Generation)
	e.Bin(n.Data)
	if plain {
		return
	}
	var l lockState
	if n.lock != nil {
		l = *n.lock
	}
	var a aclState
	if n.acl != nil {
		a = *n.acl
	}
	e.Uint(uint64(n.Ephemeral))
	e.Uint(n.Cached)
	e.Str(a.name)
	e.Uint(a.generation)
	e.Uint(l.generation)
	e.Uint(uint64(l.delay / time.Millisecond))
	e.Uint(uint64(l.delayMode))
	e.Uint(l.delayIndex)
}

func (fw *frameWriter) session(s *Session) {
	e := fw.enc
	e.Array(4)
	e.Uint(recordSession)
	e.Uint(uint64(s.ID))
	e.Str(s.Name)
	e.Uint(uint64(s.Lease / time.Millisecond))
}

func (fw *frameWriter) hold(h hold) {
	e := fw.enc
	e.Array(6)
	e.Uint(recordHold)
	e.Uint(uint64(h.session))
	e.Str(h.path)
	e.Uint(uint64(h.mode))
	e.Uint(uint64(h.delay / time.Millisecond))
	e.Uint(h.since)
}

// end writes the end record.
func (fw *frameWriter) end(ns *Namespace, applied uint64) {
	e := fw.enc
	e.Array(6)
	e.Uint(recordEnd)
	e.Uint(applied)
	e.Uint(uint64(ns.nodes.Len()))
	e.Uint(uint64(ns.bytes))
	e.Uint(uint64(ns.sessions.Len()))
	e.Uint(uint64(ns.holds.Len()))
}

// owners writes the owners of sessions and nodes that belong to users.
func (fw *frameWriter) owners(ns *Namespace) {
	record := func(owner string, id api.SessionID, path string) bool {
		if owner == "" {
			return fw.err == nil
		}
		fw.enc.Array(4)
		fw.enc.Uint(recordOwner)
		fw.enc.Str(owner)
		fw.enc.Uint(uint64(id))
		fw.enc.Str(path)
		return fw.more()
	}
	ns.sessions.Ascend(func(s *Session) bool { return record(s.Owner, s.ID, "") })
	ns.nodes.Ascend(func(n *Node) bool { return record(n.owner, 0, n.Path) })
}

// removals writes the last removals in directories.
func (fw *frameWriter) removals(ns *Namespace) {
	ns.nodes.Ascend(func(n *Node) bool {
		if n.removed == 0 {
			return fw.err == nil
		}
		fw.enc.Array(3)
		fw.enc.Uint(recordRemoval)
		fw.enc.Str(n.Path)
		fw.enc.Uint(n.removed)
		return fw.more()
	})
}

// builder builds a namespace from records, and verifies that they are consistent.
type builder struct {
	ns        *Namespace
	last      *Node
	dir       *Node // the directory of the last node
	lastHold  hold  // the last hold
	hasOwners bool  // there was an owner record, or one of a removal
	removals  bool  // there was a record of a removal
	files     int   // ephemeral files without a hold so far
	applied   uint64
	ended     bool
}

// frame adds the records of one frame.
func (b *builder) frame(payload []byte) error {
	d := wire.NewDecoder(payload)
	for d.More() {
		if b.ended {
			return fmt.Errorf("%w: records after the end", ErrBadSnapshot)
		}
		if err := b.record(&d); err != nil {
			return err
		}
	}
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	return nil
}

// record adds one record.
func (b *builder) record(d *wire.Decoder) error {
	n := d.Array()
	switch kind := d.Uint(); {
	case kind == recordNode && n == 6 || kind == recordExtended && n == 14:
		return b.node(d, kind == recordExtended)
	case kind == recordSession && n == 4:
		return b.session(d)
	case kind == recordHold && n == 6:
		return b.hold(d)
	case kind == recordOwner && n == 4:
		return b.owner(d)
	case kind == recordRemoval && n == 3:
		return b.removal(d)
	case kind == recordEnd && (n == 4 || n == 6):
		return b.end(d, n == 6)
	case d.Err() == nil:
		return fmt.Errorf("%w: record of kind %d with %d values", ErrBadSnapshot, kind, n)
	}
	return nil
}

// session adds a session. Sessions come first, ordered by id.
func (b *builder) session(d *wire.Decoder) error {
	s := &Session{ID: api.SessionID(d.Uint()), Name: d.Str(), Lease: decodeMillis(d, api.LeaseMax)}
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	last, _ := b.ns.sessions.Max()
	if b.last != nil || s.ID == 0 || last != nil && !sessionLess(last, s) ||
		len(s.Name) > api.SessionNameBytesMax || s.Lease < api.LeaseMin || b.ns.sessions.Len() >= api.SessionsMax {
		return fmt.Errorf("%w: invalid session %d", ErrBadSnapshot, s.ID)
	}
	b.ns.sessions.ReplaceOrInsert(s)
	return nil
}

// node adds a node. Nodes come in tree order, each after its directory.
func (b *builder) node(d *wire.Decoder, extended bool) error {
	path := d.Str()
	if err := CheckDir(path); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	n := newNode(path)
	n.Dir = d.Bool()
	n.instance, n.Generation = d.Uint(), d.Uint()
	data := d.Bytes()
	if extended {
		b.extended(d, n)
	}
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	if len(data) > api.FileBytesMax || n.Dir && len(data) > 0 || n.Generation < n.instance || b.lastHold.session != 0 || b.hasOwners ||
		n.Ephemeral != 0 && (n.Dir || n.lock != nil || b.ns.Session(n.Ephemeral) == nil) {
		return fmt.Errorf("%w: invalid node %s", ErrBadSnapshot, n.Path)
	}
	if !n.Dir {
		n.Data = append(make([]byte, 0, len(data)), data...)
	}
	if n.Ephemeral != 0 {
		b.files++
	}
	if b.last == nil {
		if n.Path != root || !n.Dir {
			return fmt.Errorf("%w: first node is %s", ErrBadSnapshot, n.Path)
		}
		b.ns.nodes.ReplaceOrInsert(n)
		b.last, b.dir = n, n
		return nil
	}
	if !nodeLess(b.last, n) {
		return fmt.Errorf("%w: node %s out of order, after %s", ErrBadSnapshot, n.Path, b.last.Path)
	}
	b.last = n
	return b.attach(n)
}

// extended reads the fields that a plain node record lacks.
func (b *builder) extended(d *wire.Decoder, n *Node) {
	n.Ephemeral, n.Cached = api.SessionID(d.Uint()), d.Uint()
	a := aclState{d.Str(), d.Uint()}
	l := lockState{generation: d.Uint(), delay: decodeMillis(d, api.LockDelayMax)}
	mode := d.Uint()
	l.delayMode, l.delayIndex = api.Mode(mode), d.Uint()
	delayed := l.delay != 0
	if len(a.name) > api.ACLBytesMax || a.generation == 0 && a.name != "" || mode > uint64(api.Shared) ||
		delayed != (mode != 0) || delayed != (l.delayIndex != 0) || delayed && l.generation == 0 {
		d.Fail(errShape)
		return
	}
	if a.generation != 0 {
		n.acl = &a
	}
	if l.generation != 0 {
		n.lock = &l
	}
	if delayed {
		b.ns.delayed.ReplaceOrInsert(n.Path)
	}
}

// attach adds n to its parent. The tree is not shared yet, so the parent is modified in place.
func (b *builder) attach(n *Node) error {
	if parent := n.parent(); b.dir.Path != parent {
		if b.dir = b.ns.Get(parent); b.dir == nil || !b.dir.Dir {
			return fmt.Errorf("%w: parent of %s is missing", ErrBadSnapshot, n.Path)
		}
	}
	b.dir.children++
	b.ns.nodes.ReplaceOrInsert(n)
	b.ns.bytes += n.size()
	if !n.Dir {
		b.ns.files++
	}
	if b.ns.nodes.Len() > NodesMax || b.ns.bytes > NamespaceBytesMax {
		return fmt.Errorf("%w: namespace limits exceeded", ErrBadSnapshot)
	}
	return nil
}

// hold adds a lock or an ephemeral file of a session. Holds come after the nodes, ordered by
// session, then path.
func (b *builder) hold(d *wire.Decoder) error {
	h := hold{session: api.SessionID(d.Uint())}
	path, mode := d.Str(), d.Uint()
	h.mode, h.delay, h.since = api.Mode(mode), decodeMillis(d, api.LockDelayMax), d.Uint()
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	n, s := b.ns.Get(path), b.ns.Session(h.session)
	bad := n == nil || s == nil || mode > uint64(api.Shared) || b.lastHold.session != 0 && !holdLess(b.lastHold, hold{session: h.session, path: path})
	if !bad && h.mode == 0 {
		bad = n.Ephemeral != h.session
	} else if !bad {
		l := n.lock
		bad = n.Ephemeral != 0 || l == nil || l.holders > 0 && (l.mode != h.mode || h.mode == api.Exclusive)
	}
	if bad || b.hasOwners || s.Holds >= api.HoldsMax || b.ns.holds.Len() >= holdsTotalMax {
		return fmt.Errorf("%w: session %d cannot hold %.80q", ErrBadSnapshot, h.session, path)
	}
	h.path = n.Path
	b.lastHold = h
	s.Holds++
	b.ns.holds.ReplaceOrInsert(h)
	if h.mode == 0 {
		b.files--
		return nil
	}
	n.lock.mode = h.mode
	n.lock.holders++
	b.ns.holders.ReplaceOrInsert(holder{h.path, h.session})
	return nil
}

// owner sets the owner of a session, or if the session id is zero, of a node. Owner records come
// after all others.
func (b *builder) owner(d *wire.Decoder) error {
	owner, id, path := d.Str(), api.SessionID(d.Uint()), d.Str()
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	if b.removals {
		return fmt.Errorf("%w: owner after removals", ErrBadSnapshot)
	}
	b.hasOwners = true
	if u, ok := b.ns.users.usages.Get(&Usage{Owner: owner}); ok {
		owner = u.Owner // shares the string
	} else {
		b.ns.users.usages.ReplaceOrInsert(&Usage{Owner: owner}) // end computes the usage
	}
	switch ok := owner != "" && len(owner) <= api.OwnerBytesMax; {
	case ok && id != 0 && path == "":
		if s := b.ns.Session(id); s != nil && s.Owner == "" {
			s.Owner = owner
			return nil
		}
	case ok && id == 0 && CheckFile(path) == nil:
		if n := b.ns.Get(path); n != nil && n.owner == "" {
			n.owner = owner
			return nil
		}
	}
	return fmt.Errorf("%w: %.80q cannot own session %d or node %.80q", ErrBadSnapshot, owner, id, path)
}

// removal sets the last removal in a directory. Such records come after all others.
func (b *builder) removal(d *wire.Decoder) error {
	path, index := d.Str(), d.Uint()
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	b.hasOwners, b.removals = true, true
	var n *Node
	if CheckDir(path) == nil {
		n = b.ns.Get(path)
	}
	if n == nil || !n.Dir || n.removed != 0 || index == 0 || index > n.Generation {
		return fmt.Errorf("%w: no removal at %d in %.80q", ErrBadSnapshot, index, path)
	}
	n.removed = index
	return nil
}

// end checks the end record. That of version 1 has no counts of sessions and holds.
func (b *builder) end(d *wire.Decoder, counted bool) error {
	b.applied = d.Uint()
	nodes, bytes := d.Uint(), d.Uint()
	var sessions, holds uint64
	if counted {
		sessions, holds = d.Uint(), d.Uint()
	}
	if d.Err() == nil && (b.last == nil || nodes != uint64(b.ns.nodes.Len()) || bytes != uint64(b.ns.bytes)) {
		return fmt.Errorf("%w: %d nodes and %d bytes, not %d and %d",
			ErrBadSnapshot, b.ns.nodes.Len(), b.ns.bytes, nodes, bytes)
	}
	if d.Err() == nil && (b.files != 0 || sessions != uint64(b.ns.sessions.Len()) || holds != uint64(b.ns.holds.Len())) {
		return fmt.Errorf("%w: %d sessions, %d holds and %d ephemeral files without a hold, not %d, %d and 0",
			ErrBadSnapshot, b.ns.sessions.Len(), b.ns.holds.Len(), b.files, sessions, holds)
	}
	b.ns.recount()
	b.ended = true
	return nil
}
