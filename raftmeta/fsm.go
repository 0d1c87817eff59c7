package raftmeta

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machine is the replicated state machine: the namespace, and the rule by
// which each log entry changes it. Raft calls it; it implements
// raft.BatchingFSM.
//
// Applying never fails. What came of a command is in its result, and every
// voter comes to the same result. The one thing that a voter cannot do alike
// is a command of a newer version: it changes nothing, and since its state may
// now differ from the others' the voter gives up through fail.
type machine struct {
	// fail reports what this voter cannot go on from. It does not block.
	fail func(error)

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.RWMutex
		ns *namespace
		// applied is the index of the last command in ns.
		applied uint64
		// observer is nil when nobody observes.
		observer observer
	}

	// bytes is ns.bytes, for those who need it without the lock.
	bytes atomic.Int64
}

// observer is told of changes: those of each batch of commands together, in
// order, after they can be read and before the commands are answered, with no
// lock held.
type observer func([]change)

func newMachine(fail func(error)) *machine {
	m := &machine{fail: fail}
	m.mu.ns = newNamespace()
	return m
}

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. Each answer to a command is a
// result; raft hands in changes of membership as well, which are not the
// namespace's business.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	observer, changes := m.applyAll(logs, answers)
	if len(changes) > 0 {
		observer(changes)
	}
	return answers
}

// applyAll applies a batch, and returns what to tell whom.
func (m *machine) applyAll(logs []*raft.Log, answers []any) (observer, []change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changes []change
	if m.mu.observer != nil {
		m.mu.ns.emit = func(c change) { changes = append(changes, c) }
		defer func() { m.mu.ns.emit = nil }()
	}
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			answers[i] = m.applyLocked(l)
		}
	}
	m.bytes.Store(m.mu.ns.bytes)
	return m.mu.observer, changes
}

// applyLocked applies one command. The namespace keeps l.Data's bytes, which
// nobody writes to.
func (m *machine) applyLocked(l *raft.Log) result {
	c, err := decodeCommand(l.Data)
	if err != nil {
		m.fail(fmt.Errorf("apply log entry %d: %w", l.Index, err))
		return result{code: codeUnknown}
	}
	m.mu.applied = l.Index
	return m.mu.ns.apply(l.Index, l.Term, &c)
}

// observe makes o the observer, in place of the one before, and returns the
// namespace, and the index of the last command in it, from which on o is told.
// The namespace is a copy of the caller's own. A nil o observes nothing.
func (m *machine) observe(o observer) (*namespace, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.observer = o
	return m.mu.ns.clone(), m.mu.applied
}

// view calls f with the namespace, which f must neither change nor keep.
func (m *machine) view(f func(ns *namespace, applied uint64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.mu.ns, m.mu.applied)
}

// Snapshot implements raft.FSM. It takes constant time; Persist works on a
// clone, while commands go on being applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return m.freeze(), nil }

// freeze returns the namespace as it is now.
func (m *machine) freeze() *frozen {
	// A clone marks the original's tree as shared, so it is a write to it.
	m.mu.Lock()
	defer m.mu.Unlock()
	return &frozen{ns: m.mu.ns.clone(), applied: m.mu.applied}
}

// Restore implements raft.FSM. The old state stays when it returns an error.
func (m *machine) Restore(source io.ReadCloser) error {
	ns, applied, err := readSnapshot(source)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.ns, m.mu.applied = ns, applied
	m.bytes.Store(ns.bytes)
	return nil
}

// frozen is the namespace as it was when a snapshot began.
type frozen struct {
	ns      *namespace
	applied uint64
	// persisted is called with the description of the snapshot once it is
	// durable. May be nil.
	persisted func(*raft.SnapshotMeta)
}

// Persist implements raft.FSMSnapshot.
func (f *frozen) Persist(sink raft.SnapshotSink) error {
	if err := writeSnapshot(sink, f.ns, f.applied); err != nil {
		// Raft cancels the sink and reports err.
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if s, ok := sink.(*snapshotSink); ok && f.persisted != nil {
		f.persisted(s.meta)
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (f *frozen) Release() {}
