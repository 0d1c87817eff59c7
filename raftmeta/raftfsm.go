package raftmeta

import (
	"io"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
)

// machineFSM is the machine as raft's state machine. It implements raft.BatchingFSM.
type machineFSM struct{ machine *fsm.Machine }

// Apply implements raft.FSM.
func (f machineFSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. The response to a command is a result. Raft also passes
// membership changes, which do not affect the namespace.
func (f machineFSM) ApplyBatch(logs []*raft.Log) []any {
	entries := make([]fsm.Entry, 0, len(logs))
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			entries = append(entries, fsm.Entry{Index: l.Index, Term: l.Term, Command: l.Data})
		}
	}
	results := f.machine.ApplyBatch(entries)
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			answers[i], results = results[0], results[1:]
		}
	}
	return answers
}

// Snapshot implements raft.FSM.
func (f machineFSM) Snapshot() (raft.FSMSnapshot, error) {
	return &fsmSnapshot{snapshot: f.machine.Freeze()}, nil
}

// Restore implements raft.FSM. If it returns an error, the state is unchanged.
func (f machineFSM) Restore(source io.ReadCloser) error { return f.machine.Restore(source) }

// fsmSnapshot is a snapshot of the machine that raft writes to its store.
type fsmSnapshot struct {
	snapshot *fsm.Snapshot
	// persisted is called with the description of the snapshot once it is durable. May be nil.
	persisted func(*raft.SnapshotMeta)
}

// Persist implements raft.FSMSnapshot.
func (f *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := f.snapshot.Write(sink); err != nil {
		// Raft cancels the sink and reports err.
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if s, ok := sink.(*storage.SnapshotSink); ok && f.persisted != nil {
		f.persisted(s.Description())
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (f *fsmSnapshot) Release() {}

// serverFSM is the machine of a running server as raft's state machine. It also records
// configurations and snapshots.
type serverFSM struct {
	machineFSM
	members *membership
	store   *storage.Log
}

// ApplyBatch implements raft.BatchingFSM.
func (r *serverFSM) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type != raft.LogConfiguration {
			continue
		}
		if servers, err := decodeMembers(l.Data); err == nil {
			r.members.commit(l.Index, servers)
		}
	}
	return r.machineFSM.ApplyBatch(logs)
}

// Snapshot implements raft.FSM. It fails before the first command. Such a snapshot would end with
// entry 1. A leader without entry 1 in its log would not send it, because raft looks up the entry
// before.
func (r *serverFSM) Snapshot() (raft.FSMSnapshot, error) {
	f := &fsmSnapshot{snapshot: r.machine.Freeze(), persisted: r.covered}
	if f.snapshot.Applied() == 0 {
		return nil, raft.ErrNothingNewToSnapshot
	}
	return f, nil
}

// Restore implements raft.FSM.
func (r *serverFSM) Restore(source io.ReadCloser) error {
	if err := r.machineFSM.Restore(source); err != nil {
		return err
	}
	for {
		if f, ok := source.(*storage.SnapshotFile); ok {
			r.covered(f.Description())
			return nil
		}
		w, ok := source.(raft.ReadCloserWrapper)
		if !ok {
			return nil
		}
		source = w.WrappedReadCloser()
	}
}

// covered records that both the state in memory and the snapshot with that description cover the
// entries up to its last.
func (r *serverFSM) covered(meta *raft.SnapshotMeta) {
	r.members.commit(meta.ConfigurationIndex, meta.Configuration.Servers)
	r.store.Covered(storage.EntryID{Index: meta.Index, Term: meta.Term})
}
