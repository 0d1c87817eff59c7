package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/sstable"
)

// Config says how a node runs. Zero values mean the defaults.
type Config struct {
	// DataDirs are the data folders, one for each disk. At least one.
	DataDirs []string

	// Listen is the address for clients and nodes. Empty means 127.0.0.1:7106.
	Listen string
	// Gossip is the address for membership. Empty means 127.0.0.1:7107; "off" means
	// none, and that the node stays alone.
	Gossip string
	// HTTP is the address of metrics and health. Empty means 127.0.0.1:7108;
	// "off" means none.
	HTTP string

	// MemoryBytes is the memory that the node may use. Zero means a quarter of
	// the machine's; at least 256 MiB.
	MemoryBytes int64

	// Advertise is how other nodes reach this one, host or host:port. Empty means the
	// address that it listens on, or one of the machine's.
	Advertise string
	// Join are the RPC addresses of nodes whose cluster a fresh node joins; a port left
	// out is 7106. Without any, a fresh node founds a cluster of its own.
	Join []string
	// Expect is how many fresh nodes found a cluster together: all are given the same
	// number, and Join. Zero means one.
	Expect int
	// Security is the folder with the node's keys and certificate, as Initialise makes
	// it: all ports but loopback's HTTP then take peers with a certificate of the cluster
	// alone, and gossip is encrypted with a key of the folder. Empty: the node is open to
	// all who reach it, and gossip is in the clear.
	Security string
	// TokenFile has a token by which a host without keys becomes a node, or one whose
	// certificate has ended one again: it asks the nodes of Join, which must be of the cluster
	// that has made the token, and keeps what it gets in Security. It is not read otherwise.
	TokenFile string
	// Profiles is where Go's profiles of the process are, beside an HTTP port that speaks TLS: ProfilesOnHTTP, the port on
	// loopback, too, where every process of the host gets them; or the absolute path of a socket that the node's user
	// alone may open. Empty: nowhere.
	Profiles string
	// AuditTo is where each record of the audit log goes, beside the folder of keys: audit.Journal, or the absolute path
	// of a file that is appended to and never cut or renamed. Empty: nowhere else.
	AuditTo string
	// PassphraseFile has the passphrase that encrypts the keys of authorities in Security. Empty: they are in the clear.
	PassphraseFile string
	// Encryption is where the keys are that encrypt tables and commit logs on the disks.
	Encryption Encryption
	// Zone is where the node is. Voters are spread across zones.
	Zone string
	// VoterStable is how long a voter must be gone before another node gets its vote,
	// and a node be there before it gets one, unless two are there that vote beside one. Zero means 10 s.
	VoterStable time.Duration

	// Name is the node's name for people. Empty means the host's name.
	Name string

	// Dev tells that data need not outlive the machine's trust: free space may
	// run low, and the banner greets a developer.
	Dev bool

	// ReserveBytes is the disk space that each folder keeps free. Zero means a
	// twentieth of the disk, at most 1 GiB.
	ReserveBytes int64

	// ExtentBytes is the size of the block store's extents, the same on all nodes: a node
	// takes none from others that are larger than its own. A multiple of 64 KiB. Zero means
	// 64 MiB.
	ExtentBytes int64

	// Waiting, unless nil, is told what a start waits for, each time that this changes.
	Waiting func(what string)

	Logger *slog.Logger // nil discards

	metadataSplitBytes int64         // if not zero, for tests
	tabletsAskedMax    int64         // if not zero, for tests
	rolloverPeriod     time.Duration // if not zero, for tests
	keysByHand         bool          // for tests, which make each step of a rotation of the gossip key themselves
	// dial connects to other nodes below TLS, if not nil, for tests.
	dial func(ctx context.Context, addr string) (net.Conn, error)
}

// MemoryMin is the least memory that a node works in.
const MemoryMin = 256 << 20

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Listen, "127.0.0.1:7106")
	setDefault(&c.Gossip, "127.0.0.1:7107")
	setDefault(&c.HTTP, "127.0.0.1:7108")
	if c.Name == "" {
		c.Name, _ = os.Hostname()
		setDefault(&c.Name, "stele")
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

// DefaultMemory returns the memory that a node uses unless it is told: a quarter of the machine's.
func DefaultMemory() (int64, error) {
	total, err := machineMemory("/")
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
		return errors.New("there is a token to join by, and no folder to keep keys in")
	}
	if c.Gossip == "off" && (len(c.Join) > 0 || c.Expect > 1) {
		return errors.New("gossip is off, so the node can neither join others nor expect any")
	}
	if c.MemoryBytes < MemoryMin {
		return fmt.Errorf("memory is %d bytes, must be at least %d (256 MiB)", c.MemoryBytes, MemoryMin)
	}
	return nil
}

// budget is how a node divides its memory (I13). The shares and programBytes are no more than the whole. What the garbage
// collector needs is what of them is not used: hardly ever all are full at once.
type budget struct {
	memtables, cache, rpc, message, results, large int64
	metadataMemtables, metadataCache               int64
	compaction, metadataCompaction                 int64
	learn                                          int64 // of two-pass compression
	logBatch, logWindow                            int64 // of commit logs
	blobWindow                                     int64 // of each file that is written to other nodes
	sort                                           int64 // of a piece of a dead server's log, while one is sorted
	sorts                                          int   // of them at a time
	locks                                          int64 // of the lock service: what users hold there, and what its leader keeps for them
	cursors                                        int64 // of scans that can go on: keys and filter programs
	copies                                         int   // of extents that are made here at a time, and that others are asked for
}

// logBytes is what commit logs have in buffers: batches, of which there are four, and what is on its way to disks: as it is sent,
// and, as it is written here, twice. METADATA's log has batches of its own, and little on its way.
func (b *budget) logBytes() int64 { return 4*b.logBatch + 3*b.logWindow + 4*b.metadataLogBatch() }

// blobBytes is what replicas of files take on their way: each server writes two files at a time.
func (b *budget) blobBytes() int64 { return 4*b.blobWindow + int64(b.copies)*blobfs.CopyMemory }

// encryptionBytes is the memory of the buffers for encrypted files. With many disks and little memory it is an estimate below
// their bound, which takes all disks at their most concurrent calls.
func (c Config) encryptionBytes() int64 {
	if c.Encryption == (Encryption{}) {
		return 0
	}
	return min(int64(len(c.DataDirs))*blobfs.EncryptionMemory, c.MemoryBytes/16)
}

// sortBytes is what the caches give way to a sort: what is sorted, and the buffers of what is read and written.
func (b *budget) sortBytes() int64 { return b.sort + 8<<20 }

func (b *budget) metadataLogBatch() int64 { return b.logBatch / 8 }

// runtimeBytes is what the Go runtime may take.
func (c Config) runtimeBytes() int64 { return c.MemoryBytes - max(c.MemoryBytes/10, programBytes) }

// programBytes is what a process takes beside what the Go runtime counts: the pages of the program that it has used, and the
// kernel's for its connections.
const programBytes = 56 << 20

// gossipStreams is what streams of gossip may take: no share, since all of it is hardly used but while somebody floods the port.
func (c Config) gossipStreams() int64 { return min(12<<20, c.MemoryBytes/32) }

func (c Config) budget() budget {
	m, all := c.MemoryBytes, c.runtimeBytes()
	b := budget{message: min(320<<20, m/10), compaction: min(256<<20, all/10)}
	b.rpc = max(m/10, 2*b.message) // a read buffer doubles until the message fits
	b.learn = min(24<<20, max(10<<20, all/16))
	b.logBatch, b.logWindow = min(4<<20, m/256), min(8<<20, m/128)
	b.sort, b.sorts = min(80<<20, m/16), 1
	if m >= 4<<30 {
		b.sorts = 2
	}
	b.blobWindow, b.copies = min(8<<20, m/256), int(min(32, m/(64<<20)))
	b.locks, b.cursors = c.lockShare(openClients).AllBytes+c.lockShare(openClients).AllLeaderBytes, m/cursorMemoryShare
	rest := all - b.locks - b.cursors - b.rpc - b.compaction - b.learn - b.logBytes() - b.blobBytes() - c.encryptionBytes() - sstable.ZstdMemory
	b.memtables, b.results, b.large = rest*5/16, rest*2/16, rest/16
	b.cache = rest - b.memtables - b.results - b.large
	b.metadataMemtables, b.metadataCache = min(m/80, 64<<20), min(m/40, 256<<20)
	b.memtables, b.cache = b.memtables-b.metadataMemtables, b.cache-b.metadataCache
	b.metadataCompaction = b.compaction / 4
	b.compaction -= b.metadataCompaction
	return b
}
