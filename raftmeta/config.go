package raftmeta

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/lease"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/fsm"
)

// Streams connects the servers of a group: it accepts connections from the other servers and dials
// them. Servers are identified by their fixed ids; Streams resolves an id to its current address.
// It must admit only servers of the cluster. A connection that Accept returns may implement AuthenticatedConn.
type Streams interface {
	net.Listener
	// Dial connects to the server with that id. It must return within about timeout. A connection
	// to the wrong server does no harm: that server rejects it.
	Dial(id string, timeout time.Duration) (net.Conn, error)
}

// AuthenticatedConn is a connection whose peer has been authenticated. It is not accepted from a peer that
// claims a different server id.
type AuthenticatedConn interface {
	// Server returns the id of the authenticated server.
	Server() string
}

// Clock is a monotonic clock. Only its rate matters.
type Clock = lease.Clock

// Config configures a group.
type Config struct {
	// Dir is the data directory with the log and the snapshots of this server. Open creates it if
	// it does not exist. No other program may write to it. A directory without a log is initialized
	// as the first voter of a new group, or with Join as a server that waits to be added.
	// Afterwards the directory alone determines the group; flags are ignored.
	Dir string

	// Join initializes a directory without a log as a server that waits until the leader of a group
	// adds it (Group.AddNonvoter). It has no effect on any other directory.
	Join bool

	// Invitation is the leader's invitation of a server that joins (Group.Invite), which its directory
	// then records. It is zero only for a server that was never a member of the group.
	Invitation Invitation

	// ID identifies this server in its group permanently: 1 to 64 bytes. Open rejects a directory
	// that belongs to another id.
	ID string

	// Streams connects the servers of the group. It may be nil for a group of one voter. Close
	// closes it.
	Streams Streams

	// HeartbeatTimeout is the minimum time without contact from the leader after which a voter
	// calls an election. Each voter waits a random time between that and twice that. The leader
	// sends ten heartbeats in it. Zero means 500 ms, because a machine with all cores busy may not
	// run a process for 100 ms and more.
	HeartbeatTimeout time.Duration

	// ElectionTimeout is the minimum time that a candidate waits for votes before it retries; the
	// maximum is twice that. Zero means the heartbeat timeout, which is the least.
	ElectionTimeout time.Duration

	// LeaderLease is the time without an answer from a quorum after which a leader steps down.
	// Callers that wait for the leader then fail; no read or lock relies on it. Zero means the
	// heartbeat timeout, which is the most.
	LeaderLease time.Duration

	// CommitTimeout is the minimum time without a new entry after which the followers are sent the
	// commit index; the maximum is twice that. Zero means 50 ms.
	CommitTimeout time.Duration

	// OnRemoved is called, at most once and in its own goroutine, when another server reports that
	// the group has committed a configuration without this server, newer than any that this server
	// knows. This server will have no leader from then on. Nil means that the removal is only
	// logged.
	OnRemoved func()

	// AddressOf returns the address where a server answers calls, for the hint in a
	// *NotLeaderError, or an empty string. It must not block. Nil means that no address is known.
	AddressOf func(id string) string

	// QuotaOf returns the quota of the user on whose behalf a node makes a change: see
	// api.SetOptions.Owner. It must not block. Nil means that such changes are charged to no user.
	QuotaOf func(owner string) Quota

	// FS is the file system of Dir. Nil means the operating system's. bbolt, the default store of the
	// log, uses the operating system's in any case: another FS needs another OpenLog too.
	FS vfs.FS

	// OpenLog opens or creates the store of the log. Nil means storage.OpenBolt.
	OpenLog storage.OpenFunc

	// Logger receives messages for the operator. Nil discards them.
	Logger *slog.Logger

	// OnFatal is called, at most once and in its own goroutine, when this server cannot continue:
	// its disk failed (*DiskError) or stalled (one that is ErrStalled), stored bytes are corrupt
	// (*CorruptError), the log contains what a newer program wrote (*VersionError), or
	// ErrLogReplaced. Nothing is acknowledged after that. The process should log the reason and
	// exit, so that another server leads. Close may then take until its own deadline. Nil means
	// that the error is logged.
	OnFatal func(error)

	// StallTimeout bounds one write of the log. Zero means 10 s; at least 100 ms. A single voter
	// gains nothing from a shorter one, because no other server can take over. With several voters
	// it is at most 3 s, so that another server leads within 5 s.
	StallTimeout time.Duration

	// SnapshotBytes is the minimum size of the log since the last snapshot, in bytes, that starts a
	// new snapshot. If the namespace is larger, its size is the minimum, so that snapshots at most
	// double the bytes written. Zero means 16 MiB: a restart replays some 80,000 small commands in
	// a second; at least 4 KiB.
	SnapshotBytes int64

	// TrailingLogs is the number of entries that stay in the log after a snapshot covers them, for
	// followers that are behind: those further behind receive the snapshot. Zero means 1024. An entry
	// has at most 256 KiB, so this is also a bound of 256 MiB.
	TrailingLogs uint64

	// ReserveBytes is the free disk space that is kept for the log. With less, Set fails with
	// ErrDiskFull. Zero means 64 MiB.
	ReserveBytes int64

	// Clock measures leases and lock-delays. Nil means the machine's clock.
	Clock Clock
}

// NamespaceBytesMax bounds the sum of paths, contents and ACL names of all files and directories.
const NamespaceBytesMax = fsm.NamespaceBytesMax

const (
	idBytesMax = 64
	// trailingLogs is the default of TrailingLogs.
	trailingLogs = 1024
	// stallTimeoutMax bounds StallTimeout if there are several voters.
	stallTimeoutMax = 3 * time.Second
)

// withDefaults returns c with its zero values replaced by the defaults, or an error if c is
// invalid.
func (c Config) withDefaults() (Config, error) {
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = lease.NewClock()
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
	if c.TrailingLogs == 0 {
		c.TrailingLogs = trailingLogs
	}
	if c.ReserveBytes == 0 {
		c.ReserveBytes = 64 << 20
	}
	return c, c.validate()
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("raftmeta config: no data directory")
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
	case c.SnapshotBytes < 4<<10:
		return fmt.Errorf("raftmeta config: %d snapshot bytes, at least 4 KiB", c.SnapshotBytes)
	case c.ReserveBytes < 0:
		return fmt.Errorf("raftmeta config: %d reserve bytes", c.ReserveBytes)
	}
	return nil
}
