package fsm

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/internal/invariant"
)

// Machine is the replicated state machine: the namespace, and the rules by which the commands of the
// log change it. It is safe for concurrent use.
//
// Apply never fails. The outcome of a command is its result, which is the same on every voter. The
// exception is a command of a newer version: it changes nothing here, so the state may diverge from
// the other voters', and this voter stops through fail.
type Machine struct {
	// fail reports an error after which this voter cannot continue. It does not block.
	fail func(error)

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.RWMutex
		ns *Namespace
		// applied is the index of the last command in ns.
		applied uint64
		// observer may be nil.
		observer Observer
	}

	// bytes is a copy of ns.bytes that can be read without the lock.
	bytes atomic.Int64
}

// Entry is a command in the log.
type Entry struct {
	Index, Term uint64
	// Command is an encoded command. The machine retains it, so it must not be modified.
	Command []byte
}

// Observer receives the changes of each batch of commands, in order. It is called without locks,
// after the changes are visible and before the commands are answered.
type Observer func([]Change)

// NewMachine returns a machine with an empty namespace. fail is called with a *VersionError, or
// another error after which this voter cannot continue. It must not block.
func NewMachine(fail func(error)) *Machine {
	m := &Machine{fail: fail}
	m.mu.ns = NewNamespace()
	return m
}

// Apply applies one command.
func (m *Machine) Apply(e Entry) Result { return m.ApplyBatch([]Entry{e})[0] }

// ApplyBatch applies commands in order, and returns their results.
func (m *Machine) ApplyBatch(entries []Entry) []Result {
	results := make([]Result, len(entries))
	observer, changes := m.applyAll(entries, results)
	if len(changes) > 0 {
		observer(changes)
	}
	return results
}

// applyAll applies a batch, and returns the observer and the changes to pass to it.
func (m *Machine) applyAll(entries []Entry, results []Result) (Observer, []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changes []Change
	if m.mu.observer != nil {
		m.mu.ns.emit = func(c Change) { changes = append(changes, c) }
		defer func() { m.mu.ns.emit = nil }()
	}
	for i := range entries {
		results[i] = m.applyLocked(&entries[i])
	}
	m.bytes.Store(m.mu.ns.bytes)
	return m.mu.observer, changes
}

// applyLocked applies one command.
func (m *Machine) applyLocked(e *Entry) Result {
	c, err := DecodeCommand(e.Command)
	if err != nil {
		m.fail(fmt.Errorf("apply log entry %d: %w", e.Index, err))
		return Result{Code: CodeUnknown}
	}
	invariant.Check(e.Index > m.mu.applied, "command %d is applied after command %d", int64(e.Index), int64(m.mu.applied))
	m.mu.applied = e.Index
	return m.mu.ns.Apply(e.Index, e.Term, &c)
}

// Observe replaces the observer. It returns a copy of the namespace and the index of the last
// command in it; o receives all changes after that. A nil o removes the observer.
func (m *Machine) Observe(o Observer) (*Namespace, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.observer = o
	return m.mu.ns.clone(), m.mu.applied
}

// View calls f with the namespace, which f must neither modify nor retain, and the index of the last
// command in it.
func (m *Machine) View(f func(ns *Namespace, applied uint64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.mu.ns, m.mu.applied)
}

// NamespaceBytes returns the size of the namespace, in bytes. It takes no lock.
func (m *Machine) NamespaceBytes() int64 { return m.bytes.Load() }

// Snapshot is the namespace as of one command.
type Snapshot struct {
	ns      *Namespace
	applied uint64
}

// Freeze returns a snapshot. It takes constant time: the snapshot has a clone of the namespace, and
// can be written while further commands are applied.
func (m *Machine) Freeze() *Snapshot {
	// A clone marks the original's tree as shared, so it is a write to it.
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Snapshot{ns: m.mu.ns.clone(), applied: m.mu.applied}
}

// lastApplied returns the index of the last command in the snapshot, zero if there is none.
func (s *Snapshot) Applied() uint64 { return s.applied }

// Write writes the snapshot's stream to w.
func (s *Snapshot) Write(w io.Writer) error { return WriteSnapshot(w, s.ns, s.applied) }

// Restore replaces the state by the snapshot that it reads from r. If it returns an error, the state
// is unchanged.
func (m *Machine) Restore(r io.Reader) error {
	ns, applied, err := ReadSnapshot(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.ns, m.mu.applied = ns, applied
	m.bytes.Store(ns.bytes)
	return nil
}
