package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/internal/machine"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/dataapi"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/tabletserver"
	"github.com/steledb/stele/raftmeta/storage"
)

// Config is the configuration of a node. Zero values mean the defaults.
type Config struct {
	// DataDirs are the data directories, one for each disk. At least one.
	DataDirs []string

	// Listen is the address for clients and nodes. Empty means 127.0.0.1:7106.
	Listen string
	// Gossip is the address for membership. Empty means 127.0.0.1:7107; "off" means none, and a cluster of this node alone.
	Gossip string
	// HTTP is the address of metrics and health. Empty means 127.0.0.1:7108;
	// "off" means none.
	HTTP string
	// Bigtable is the address of Cloud Bigtable's API: TLS with Security, and otherwise plain text without authentication. Empty and "off"
	// mean none.
	Bigtable string
	// SlowRequest is how long a request takes to be among the slow ones that the node keeps. Zero means 200 ms.
	SlowRequest time.Duration
	// TraceSample is how many requests have one whose trace is kept although it is not slow. Zero means 1000; a negative number switches tracing
	// off, so that slow requests are kept without what they did.
	TraceSample int
	// OTLPEndpoint is the URL of a collector to which traces are exported, by OTLP over HTTP. Empty means none.
	OTLPEndpoint string
	// BigtableSessions makes clients of that API use sessions for point reads and row mutations.
	BigtableSessions bool
	// BigtableStrictLimits rejects requests of that API beyond the limits of Google's service.
	BigtableStrictLimits bool

	// MemoryBytes is the memory that the node may use. Zero means a quarter of
	// the machine's; at least 256 MiB.
	MemoryBytes int64

	// Advertise is the address that other nodes use for this one, host or host:port. Empty means the listen address, or one of the machine's.
	Advertise string
	// Join are the RPC addresses of nodes whose cluster a fresh node joins; the default port is 7106. Without any, a fresh node founds a cluster.
	Join []string
	// Expect is the number of fresh nodes that found a cluster together. All of them have the same number, and Join. Zero means one.
	Expect int
	// Security is the directory with the node's keys and certificate, as Initialise creates it. All ports except HTTP on loopback then require a
	// certificate of the cluster, and gossip is encrypted. If it is empty, the node is open to all that can reach it, and gossip is not encrypted.
	Security string
	// TokenFile has the token with which a host without keys, or a node with an expired certificate, joins. It calls the nodes of Join, which must
	// belong to the token's cluster, and writes its keys to Security. Otherwise the file is not read.
	TokenFile string
	// Profiles is where Go's profiles are served, besides an HTTP port with TLS: monitor.ProfilesOnHTTP, which adds the port on loopback, where
	// every process of the host can read them; or the absolute path of a socket that only the node's user may open. Empty: nowhere else.
	Profiles string
	// AuditTo is a second sink of the audit log: audit.Journal, or the absolute path of a file that is appended to and never truncated or renamed.
	// Empty: none.
	AuditTo string
	// PassphraseFile has the passphrase that encrypts the authorities' keys in Security. Empty: they are not encrypted.
	PassphraseFile string
	// Encryption names the keys that encrypt tables and commit logs on the disks.
	Encryption masterkeys.Source
	// Zone is the failure domain of the node. Voters are spread across zones.
	Zone string
	// VoterStable is how long a voter must be gone before another node gets its vote, and how long a node must be up before it gets one, unless it
	// makes a group of one fault-tolerant. Zero means 10 s.
	VoterStable time.Duration

	// Name is the node's name. Empty means the host's name.
	Name string

	// Dev is for development: free space may run low, and the banner greets a developer.
	Dev bool

	// ReserveBytes is the disk space that each data directory keeps free. Zero means a twentieth of the disk, at most 1 GiB.
	ReserveBytes int64

	// ExtentBytes is the size of the block store's extents, the same on all nodes: a node accepts no larger extents from others. A multiple of
	// 64 KiB. Zero means 64 MiB.
	ExtentBytes int64

	// Network is the network of all ports but HTTP. Nil means MachineNetwork.
	Network Network
	// FS is the file system of DataDirs, Security and TokenFile. Nil means the operating system's, which has all other files in any case.
	FS vfs.FS
	// OpenRaftLog opens the store of the lock service's log, a file below a data directory. Nil means bbolt, which needs the operating system's
	// file system.
	OpenRaftLog storage.OpenFunc

	// Waiting, unless nil, is called with what a start waits for, each time that it changes.
	Waiting func(what string)

	Logger *slog.Logger // nil discards

	Tuning Tuning

	tabletsRequestedMax int64         // if not zero, for tests
	rolloverPeriod      time.Duration // if not zero, for tests
	keysByHand          bool          // for tests, which make each step of a rotation of the gossip key themselves
}

// Tuning has sizes and periods of a node's parts. Zero values mean the defaults of these parts, which suit all clusters. Tests choose small
// ones, so that what is rare otherwise happens often: snapshots, compactions, rounds of garbage collection.
type Tuning struct {
	// SnapshotBytes and TrailingLogs of the lock service are those of raftmeta.Config.
	SnapshotBytes int64
	TrailingLogs  uint64
	// Tablets has the sizes of tablets and of commit logs.
	Tablets tabletserver.Sizes
	// Repair configures the repair of extents, except Workers, which the memory decides. It must be the same on all nodes.
	Repair repair.Config
	// GC configures garbage collection. It must be the same on all nodes.
	GC gc.Config
	// SweepDelay is the time between becoming master and the first garbage collection. Zero means 10 min.
	SweepDelay time.Duration
	// DroppedFor is how long dropped tables are kept. Zero means a week. It must be the same on all nodes.
	DroppedFor time.Duration
	// StagedFor is how long blobs that were staged for an import are kept. Zero means 48 h. It must be the same on all nodes.
	StagedFor time.Duration
}

// MemoryMin is the least memory of a node.
const MemoryMin = 256 << 20

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Listen, "127.0.0.1:7106")
	setDefault(&c.Gossip, "127.0.0.1:7107")
	setDefault(&c.HTTP, "127.0.0.1:7108")
	setDefault(&c.Bigtable, "off")
	if c.SlowRequest == 0 {
		c.SlowRequest = 200 * time.Millisecond
	}
	if c.TraceSample == 0 {
		c.TraceSample = 1000
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
		setDefault(&c.Name, "stele")
	}
	if c.Network == nil {
		c.Network = MachineNetwork()
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.VoterStable == 0 {
		c.VoterStable = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MemoryBytes == 0 {
		var err error
		if c.MemoryBytes, err = DefaultMemory(); err != nil {
			return c, err
		}
	}
	return c, c.validate()
}

// DefaultMemory returns the default memory of a node: a quarter of the machine's.
func DefaultMemory() (int64, error) {
	total, err := machine.Memory("/")
	if err != nil {
		return 0, fmt.Errorf("find the machine's memory: %w; set the memory to use", err)
	}
	return max(total/4, MemoryMin), nil
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func (c Config) validate() error {
	if len(c.DataDirs) == 0 {
		return errors.New("no data folder given")
	}
	if c.TokenFile != "" && c.Security == "" {
		return errors.New("a join token needs a folder for the keys")
	}
	if c.Gossip == "off" && (len(c.Join) > 0 || c.Expect > 1) {
		return errors.New("gossip is off, so the node can neither join nor expect other nodes")
	}
	if c.MemoryBytes < MemoryMin {
		return fmt.Errorf("memory is %d bytes, must be at least %d (256 MiB)", c.MemoryBytes, MemoryMin)
	}
	return nil
}

// RuntimeMemory returns the memory limit of the Go runtime for a process that is this node and nothing else, in bytes. A node does not set
// it: it is that of the process, which may have several nodes.
func (c Config) RuntimeMemory() (int64, error) {
	c, err := c.withDefaults()
	if err != nil {
		return 0, err
	}
	return c.budget().Runtime, nil
}

// budget divides the node's memory.
func (c Config) budget() budget.Budget {
	locks := lockserver.ShareOf(c.MemoryBytes, authz.OpenClients)
	folders := 0
	if c.Encryption != (masterkeys.Source{}) {
		folders = len(c.DataDirs)
	}
	gateway := int64(0)
	if c.Bigtable != "off" {
		gateway = c.MemoryBytes / gatewayMemoryShare
	}
	return budget.Of(c.MemoryBytes, budget.Fixed{Gateway: gateway, Locks: locks.AllBytes + locks.AllLeaderBytes, Cursors: c.MemoryBytes / dataapi.CursorMemoryShare, EncryptedFolders: folders})
}
