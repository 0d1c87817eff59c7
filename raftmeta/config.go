package raftmeta

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Streams carries the traffic between the servers of a group: a listener of
// connections from the others, and a way to reach them. Servers are named by
// their ids, which stay; where they are now is for Streams to know. Only
// servers of the cluster must be able to connect. A connection that Accept returns
// may be Proven.
type Streams interface {
	net.Listener
	// Dial connects to the server of that id. It must return in about the
	// time given. A connection to another server does no harm: it is refused.
	Dial(id string, timeout time.Duration) (net.Conn, error)
}

// Proven is a connection whose other end has proved who it is. It speaks for no other server.
type Proven interface {
	// Server returns the id of the server.
	Server() string
}

// Config says how to open a group.
type Config struct {
	// Dir is the folder of this server's log and snapshots. It is made if it
	// is not there, and belongs to the group alone. A folder without a log is
	// made the first voter of a new group, or with Join waits for one; from
	// then on the folder says which group it is of, and no flag does.
	Dir string

	// Join makes a folder without a log that of a server which waits until the
	// leader of a group adds it (Group.AddNonvoter). For any other folder it
	// says nothing.
	Join bool

	// ID names this server in its group, for good: 1 to 64 bytes. A folder
	// that knows another name is refused.
	ID string

	// Streams connects the servers of the group. Nil will do for a group of
	// one voter. Close closes it.
	Streams Streams

	// HeartbeatTimeout is how long a voter listens for its leader before it
	// calls an election; up to twice that, since each draws its own. The
	// leader sends a heartbeat ten times in it. Zero means 500 ms: a machine
	// whose cores are all busy may not run a process for 100 ms and more.
	HeartbeatTimeout time.Duration

	// ElectionTimeout is how long a candidate waits for votes, up to twice
	// that, before it tries again. Zero means the heartbeat timeout, which is
	// the least.
	ElectionTimeout time.Duration

	// LeaderLease is after how long without an answer from a quorum a leader
	// steps down. It frees those who wait for it, and no read or lock relies
	// on it. Zero means the heartbeat timeout, which is the most.
	LeaderLease time.Duration

	// CommitTimeout is after how long without a new entry the others are told
	// what has been committed, up to twice that. Zero means 50 ms.
	CommitTimeout time.Duration

	// OnRemoved is called, at most once and in a goroutine of its own, when
	// another server says that the group has committed a configuration without
	// this one, newer than any that this one knows. It will not be led from
	// then on. Nil means that it is logged.
	OnRemoved func()

	// AddressOf returns where the server of that id answers calls, or an empty
	// string, for the hint in a *NotLeaderError. It must not block. Nil means
	// that no address is known.
	AddressOf func(id string) string

	// ShareOf returns the share of the user for whom a node makes a change: see
	// api.SetOptions.Owner. It must not block. Nil means that such changes are the cluster's.
	ShareOf func(owner string) Share

	// FS is the file system for everything but the log itself, whose store
	// knows only the machine's own. Nil means that one. Tests put faults in
	// front of it.
	FS vfs.FS

	// Logger takes what an operator should know. Nil discards it.
	Logger *slog.Logger

	// OnFatal is called, at most once and in a goroutine of its own, when this
	// server cannot go on: its disk failed (*DiskError) or stalled (one that
	// is ErrStalled), stored bytes turned out bad (*CorruptError), or the log
	// holds what a newer program wrote (*VersionError). Nothing is
	// acknowledged from that moment; the process should end, with a line that
	// says why, so that another server leads. Close may hang until its own
	// deadline then. Nil means that the error is logged.
	OnFatal func(error)

	// StallTimeout is how long the disk may take over one write of the log.
	// Zero means 10 s; at least 100 ms. A lone voter gains nothing by giving
	// up sooner, since nobody can take over. With several voters it is at most
	// 3 s, so that another leads within 5 s.
	StallTimeout time.Duration

	// SnapshotBytes is the least size of the log, in bytes since the last
	// snapshot, that starts a new one. A larger namespace waits for a log of
	// its own size, so that snapshots at most double what is written. Zero
	// means 16 MiB: a restart replays some 80,000 small commands in a second;
	// at least 64 KiB.
	SnapshotBytes int64

	// ReserveBytes is the room on the disk that Set leaves for the log to
	// breathe: with less, it is refused with ErrDiskFull. Zero means 64 MiB.
	ReserveBytes int64

	// Clock measures leases and lock-delays. Nil means the machine's own.
	Clock Clock

	// wrapLog, in tests, stands before the log's store.
	wrapLog func(boltStore) boltStore
}

const (
	idBytesMax = 64
	// stallTimeoutMax is the most that StallTimeout counts for with several
	// voters.
	stallTimeoutMax = 3 * time.Second
)

// withDefaults returns c with its zero values replaced, or says what is wrong
// with it.
func (c Config) withDefaults() (Config, error) {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = newMachineClock()
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = 10 * time.Second
	}
	if c.HeartbeatTimeout == 0 {
		c.HeartbeatTimeout = 500 * time.Millisecond
	}
	if c.ElectionTimeout == 0 {
		c.ElectionTimeout = c.HeartbeatTimeout
	}
	if c.LeaderLease == 0 {
		c.LeaderLease = c.HeartbeatTimeout
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 50 * time.Millisecond
	}
	if c.SnapshotBytes == 0 {
		c.SnapshotBytes = 16 << 20
	}
	if c.ReserveBytes == 0 {
		c.ReserveBytes = 64 << 20
	}
	return c, c.validate()
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("raftmeta config: no folder")
	case c.ID == "" || len(c.ID) > idBytesMax:
		return fmt.Errorf("raftmeta config: server id has %d bytes, not 1 to %d", len(c.ID), idBytesMax)
	case c.StallTimeout < 100*time.Millisecond:
		return fmt.Errorf("raftmeta config: stall timeout is %v, at least 100ms", c.StallTimeout)
	case c.HeartbeatTimeout < 20*time.Millisecond:
		return fmt.Errorf("raftmeta config: heartbeat timeout is %v, at least 20ms", c.HeartbeatTimeout)
	case c.ElectionTimeout < c.HeartbeatTimeout:
		return fmt.Errorf("raftmeta config: election timeout is %v, at least the heartbeat timeout of %v", c.ElectionTimeout, c.HeartbeatTimeout)
	case c.LeaderLease < 10*time.Millisecond || c.LeaderLease > c.HeartbeatTimeout:
		return fmt.Errorf("raftmeta config: leader lease is %v, not 10ms to the heartbeat timeout of %v", c.LeaderLease, c.HeartbeatTimeout)
	case c.CommitTimeout < time.Millisecond:
		return fmt.Errorf("raftmeta config: commit timeout is %v, at least 1ms", c.CommitTimeout)
	case c.Join && c.Streams == nil:
		return errors.New("raftmeta config: a server without streams cannot join a group")
	case c.SnapshotBytes < 64<<10:
		return fmt.Errorf("raftmeta config: %d snapshot bytes, at least 64 KiB", c.SnapshotBytes)
	case c.ReserveBytes < 0:
		return fmt.Errorf("raftmeta config: %d reserve bytes", c.ReserveBytes)
	}
	return nil
}
