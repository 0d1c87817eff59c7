package blobfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// Cluster is what a store needs to work with other nodes. The zero value of a field means
// its default, if one is named.
type Cluster struct {
	Fleet Fleet
	Lists Lists
	Clock Clock // default: the machine's

	// Logs says how logs are kept.
	Logs LogConfig
	// Keep says how sealed extents are.
	Keep KeepConfig

	// Replicas is how many nodes keep an extent, if there are as many. Default 3, at
	// most 8.
	Replicas int
	// ReplyTimeout is how long a node may be silent that has something to answer, before
	// another is taken in its place. Default 3 s: longer than a pause for garbage
	// collection or of a busy disk, shorter than callers' patience.
	ReplyTimeout time.Duration
	// SealTimeout is the same for a node that makes an extent durable, as long as it
	// answers other questions. Default 30 s: 64 MiB on a slow disk that others keep busy, ten
	// times over.
	SealTimeout time.Duration
	// HedgeAfter is how long a read waits for one node before it asks the next as well.
	// Default 250 ms.
	HedgeAfter time.Duration
	// WindowBytes is what a writer may have under way, of each extent that it writes; one without a replica here keeps as much again.
	// Default 8 MiB, which is the most; at least 256 KiB.
	WindowBytes int64
	// StreamIdle is how long a node keeps what was begun and not continued. Default 2 min.
	StreamIdle time.Duration

	// Sweep says how garbage is found and removed.
	Sweep SweepConfig
}

func (c Cluster) withDefaults() Cluster {
	if c.Clock == nil {
		c.Clock = newSystemClock()
	}
	orDefault(&c.Replicas, 3)
	c.Logs = c.Logs.withDefaults()
	c.Keep = c.Keep.withDefaults()
	c.Sweep = c.Sweep.withDefaults()
	orDefault(&c.ReplyTimeout, 3*time.Second)
	orDefault(&c.SealTimeout, 30*time.Second)
	orDefault(&c.HedgeAfter, 250*time.Millisecond)
	orDefault(&c.StreamIdle, 2*time.Minute)
	orDefault(&c.WindowBytes, windowBytes)
	return c
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Validate says what is wrong with the configuration, if anything.
func (c Cluster) Validate() error {
	switch {
	case c.Replicas < 0 || c.Replicas > api.ChainMax:
		return fmt.Errorf("%d replicas, want 1 to %d", c.Replicas, api.ChainMax)
	case c.Logs.validate() != nil:
		return c.Logs.validate()
	case c.Keep.validate() != nil:
		return c.Keep.validate()
	case c.Sweep.validate() != nil:
		return c.Sweep.validate()
	case c.ReplyTimeout < 0 || c.SealTimeout < 0 || c.HedgeAfter < 0 || c.StreamIdle < 0:
		return errors.New("a duration is negative")
	case c.WindowBytes != 0 && (c.WindowBytes < 2*pieceBytes || c.WindowBytes > windowBytes):
		return fmt.Errorf("%d bytes under way, want %d to %d", c.WindowBytes, 2*pieceBytes, windowBytes)
	}
	return nil
}

// disks is the part of the store that is on this node.
type disks = local.Store

// Store is the block store as one node sees it: its own disks, and through the fleet
// those of the others. Without a fleet it is the disks and nothing else. It is safe for
// concurrent use.
type Store struct {
	*disks
	cluster   Cluster
	self      string
	log       *slog.Logger
	peers     peers
	streams   streams
	cache     extentCache
	rot       rot
	pins      pins
	sweep     sweepNode
	swept     sweepNotes
	abandoned abandoned
	frames    frameBuffers
	// openLogs are those that this node appends to.
	openLogs openLogs
	keeper   *keeper // nil without a fleet

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		closed bool
	}
	work sync.WaitGroup // goroutines of the store
}

// Open opens the store in the data folders of cfg, for a node that is alone.
func Open(cfg Config) (*Store, error) { return OpenIn(Cluster{}, cfg) }

// OpenIn opens the store of a node of a cluster. cfg.Node is ignored: the fleet knows the
// node's name.
func OpenIn(cluster Cluster, cfg Config) (*Store, error) {
	if err := cluster.Validate(); err != nil {
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s := &Store{cluster: cluster.withDefaults(), log: cfg.Logger, self: cfg.Node}
	if cluster.Fleet != nil {
		s.self = cluster.Fleet.Self()
		cfg.Node = s.self
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.disks, err = local.Open(cfg); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.peers.init(s)
	s.streams.init(s)
	s.cache.init(s.disks)
	s.pins.init()
	s.sweep.init()
	if s.cluster.Fleet != nil && !s.cluster.Keep.Off && !cfg.ReadOnly {
		s.startKeeper()
	}
	return s, nil
}

// Close ends what others have begun here, waits for it, and closes the disks. Closing
// twice does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.cancel()
	s.streams.close()
	s.work.Wait()
	s.cache.close()
	return s.disks.Close()
}

// spawn runs f in a goroutine that Close waits for; false if the store is closed.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// Create begins a blob whose extents will be on this node and others. No sweep touches it before Release. ErrDiskFull when no
// node has room, ErrFolderRetired when there is no disk to write to, ErrReadOnly, ErrClosed.
func (s *Store) Create(ctx context.Context) (*Writer, error) { return s.createPinned(ctx, 0) }

// CreateVital is Create of a blob that may take disks down to half of their reserve, when there is no other room: one
// whose writing lets the store give back space, or without which nobody could delete anything. bytes is about how long it
// will be, rather too much: so much room each extent needs to begin. Zero means that nobody knows.
func (s *Store) CreateVital(ctx context.Context, bytes int64) (*Writer, error) {
	if bytes <= 0 {
		bytes = math.MaxInt64
	}
	return s.createPinned(ctx, bytes)
}

func (s *Store) createPinned(ctx context.Context, vital int64) (*Writer, error) {
	id := NewID()
	s.pins.change(id, func(p *pin) { p.written = true })
	w, err := s.create(ctx, id, vital)
	if err != nil {
		s.Release(id)
	}
	return w, err
}

// create begins a blob. vital is about how long it will be if it is vital, and else 0.
func (s *Store) create(ctx context.Context, id ID, vital int64) (*Writer, error) {
	dropped := func() { s.Release(id) }
	if s.alone() {
		if vital > 0 {
			return s.disks.CreateVitalAs(ctx, id, vital, dropped)
		}
		return s.disks.CreateAs(ctx, id, dropped)
	}
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return local.NewWriter(id, local.WriterConfig{
		ExtentBytes: s.ExtentBytes(),
		Beside:      true,
		Dropped:     dropped,
		Begin: func(id ExtentID, offset int64) (local.ExtentSink, error) {
			x, err := s.newSpread(id, offset, local.VitalBytes(vital, offset, s.ExtentBytes()))
			if err != nil {
				return nil, err
			}
			return x, nil
		},
	})
}

// usable returns why the store takes no call, if it does not.
func (s *Store) usable(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// OpenBlob opens a sealed blob, wherever its extents are. ErrNoBlob if an extent is on no
// node, a *CorruptError if there is none that is good, and api.ErrUnreachable
// if nodes that may have it did not answer. Until the reader is closed no sweep touches the blob.
func (s *Store) OpenBlob(ctx context.Context, h Handle) (*Reader, error) {
	s.Pin(h.ID)
	r, err := s.openBlob(ctx, h)
	if err != nil {
		s.Unpin(h.ID)
		return nil, err
	}
	r.OnClose(func() { s.Unpin(h.ID) })
	return r, nil
}

func (s *Store) openBlob(ctx context.Context, h Handle) (*Reader, error) {
	if s.alone() {
		return s.disks.OpenBlob(ctx, h)
	}
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", h.ID, err)
	}
	return local.OpenExtents(h, func(ref ExtentRef) (local.ExtentSource, error) {
		x, err := s.openSource(ctx, h.ID, ref)
		if err != nil {
			return nil, err
		}
		return x, nil
	})
}

// Delete removes a blob's extents on all nodes that may have them. Those that do not
// answer are passed over: what they have is garbage that a sweep finds. ErrNoBlob if no
// node had any.
func (s *Store) Delete(ctx context.Context, id ID) error {
	if s.alone() {
		err := s.disks.Delete(ctx, id)
		if err == nil {
			s.Release(id)
		}
		return err
	}
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("delete blob %s: %w", id, err)
	}
	nodes := s.holdersOf(id)
	s.cache.forget(id)
	err := s.disks.Delete(ctx, id)
	if err != nil && !errors.Is(err, ErrNoBlob) {
		return err
	}
	s.Release(id)
	s.cache.forget(id)
	gone := err == nil
	var mu sync.Mutex
	s.each(ctx, nodes, func(ctx context.Context, p api.Peer) {
		if n, err := p.DropBlob(ctx, id, api.Deleted); err == nil && n > 0 {
			mu.Lock()
			gone = true
			mu.Unlock()
		}
	})
	if !gone {
		return fmt.Errorf("delete blob %s: %w", id, ErrNoBlob)
	}
	return ctx.Err()
}

// holdersOf returns the other nodes that may have extents of a blob: if all of them are
// here, those that the lists name, and else all.
func (s *Store) holdersOf(id ID) []string {
	var nodes []string
	whole := false
	for i, x := range s.extentsOf(id) {
		if x.Holders.Epoch == 0 || x.ID.Index != i {
			return s.others()
		}
		nodes = append(nodes, x.Holders.Nodes...)
		whole = x.Last
	}
	if !whole {
		return s.others()
	}
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(n string) bool { return n == s.self })
}
