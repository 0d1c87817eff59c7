package raftmeta

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machine is the replicated state machine: the namespace, and the rules by which log entries change
// it. It implements raft.BatchingFSM.
//
// Apply never fails. The outcome of a command is its result, which is the same on every voter. The
// exception is a command of a newer version: it changes nothing here, so the state may diverge from
// the other voters', and this voter stops through fail.
type machine struct {
	// fail reports an error after which this voter cannot continue. It does not block.
	fail func(error)

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.RWMutex
		ns *namespace
		// applied is the index of the last command in ns.
		applied uint64
		// observer may be nil.
		observer observer
	}

	// bytes is a copy of ns.bytes that can be read without the lock.
	bytes atomic.Int64
}

// observer receives the changes of each batch of commands, in order. It is called without locks,
// after the changes are visible and before the commands are answered.
type observer func([]change)

func newMachine(fail func(error)) *machine {
	m := &machine{fail: fail}
	m.mu.ns = newNamespace()
	return m
}

// Apply implements raft.FSM.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. The response to a command is a result. Raft also passes
// membership changes, which do not affect the namespace.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	observer, changes := m.applyAll(logs, answers)
	if len(changes) > 0 {
		observer(changes)
	}
	return answers
}

// applyAll applies a batch, and returns the observer and the changes to pass to it.
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

// applyLocked applies one command. The namespace retains l.Data, which must not be modified.
func (m *machine) applyLocked(l *raft.Log) result {
	c, err := decodeCommand(l.Data)
	if err != nil {
		m.fail(fmt.Errorf("apply log entry %d: %w", l.Index, err))
		return result{code: codeUnknown}
	}
	m.mu.applied = l.Index
	return m.mu.ns.apply(l.Index, l.Term, &c)
}

// observe replaces the observer. It returns a copy of the namespace and the index of the last
// command in it; o receives all changes after that. A nil o removes the observer.
func (m *machine) observe(o observer) (*namespace, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.observer = o
	return m.mu.ns.clone(), m.mu.applied
}

// view calls f with the namespace, which f must neither modify nor retain.
func (m *machine) view(f func(ns *namespace, applied uint64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.mu.ns, m.mu.applied)
}

// Snapshot implements raft.FSM. It takes constant time: Persist works on a clone while further
// commands are applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return m.freeze(), nil }

// freeze returns a snapshot of the current namespace.
func (m *machine) freeze() *frozen {
	// A clone marks the original's tree as shared, so it is a write to it.
	m.mu.Lock()
	defer m.mu.Unlock()
	return &frozen{ns: m.mu.ns.clone(), applied: m.mu.applied}
}

// Restore implements raft.FSM. If it returns an error, the state is unchanged.
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

// frozen is the namespace at the start of a snapshot.
type frozen struct {
	ns      *namespace
	applied uint64
	// persisted is called with the description of the snapshot once it is durable. May be nil.
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
