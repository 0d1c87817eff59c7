package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
)

// ErrServerClosed is the error of Serve after Shutdown or Close.
var ErrServerClosed = errors.New("rpc server closed")

// ServerConfig bounds a Server. The zero value of a field means the default given in its comment.
type ServerConfig struct {
	// MessageBytesMax is the largest request or response, in bytes: 320 MiB, which holds a row
	// mutation of 256 MiB. At least 64 KiB, at most 1 GiB.
	MessageBytesMax int
	// InFlightMax is the number of requests of one connection in flight: 1024. While a connection
	// has that many, it is not read.
	InFlightMax int
	// MemoryBytesMax bounds the bytes of requests in flight and unsent responses of all
	// connections: 1 GiB. At least MessageBytesMax. When it is reached, requests wait and then get
	// CodeOverloaded. Read buffers may take a quarter as much again, beyond the first 8 KiB of each
	// connection.
	MemoryBytesMax int64
	// UnsentBytesMax is the number of response bytes that a client has not read at which its
	// connection is no longer read: 16 MiB. At 16 times as many the connection is closed.
	UnsentBytesMax int64
	// ConnsMax is the number of open connections: 4096. Further ones are closed at once.
	ConnsMax int
	// Preferred selects peers that others cannot keep out; nil selects none. ReservedConns of ConnsMax
	// and ReservedMemory of MemoryBytesMax are reserved for them: 0 each. Their requests wait for
	// memory ahead of others. Preferred is called once, when a connection begins: see Call.Demote.
	ReservedConns  int
	ReservedMemory int64
	Preferred      func(*Peer) bool
	// OnConns is called with 1 for each connection that opens and -1 for each that ends. It must
	// not block. Nil is allowed.
	OnConns func(change int)
	// Workers is the number of goroutines that run Pooled methods: six per CPU. One owner's
	// requests may use two thirds of them. WorkQueue is the number of requests that may wait for
	// them: 1024.
	Workers, WorkQueue int
	// SpawnedMax is the number of Spawned requests that run at once: 256.
	SpawnedMax int
	// WaitingMax is the number of Waiting requests that run at once: 16384. Each takes 8 to 16 KiB.
	WaitingMax int
	// AdmitWait is how long a request waits for memory, a worker or a goroutine before it gets
	// CodeOverloaded: 1 s. Its connection is not read meanwhile.
	AdmitWait time.Duration
	// RetryAfter is the retry_after_ms of CodeOverloaded: 100 ms.
	RetryAfter time.Duration
	// MessageTimeout closes a connection if less than 64 KiB of a begun message arrives in this
	// time: 30 s. Idle connections stay open.
	MessageTimeout time.Duration
	// FirstByteTimeout closes a connection whose client has sent nothing at all in this time: 0,
	// which means never.
	FirstByteTimeout time.Duration
	// InputEndGrace is how long requests are still answered after the client has closed its side of
	// the connection: 5 s. A client that has closed both sides looks the same until a response is
	// sent to it.
	InputEndGrace time.Duration
	// WriteTimeout closes a connection whose client does not read what is written: 30 s for each
	// write of up to 1 MiB.
	WriteTimeout time.Duration
	// PressureTimeout replaces WriteTimeout during memory pressure: 1.5 s. It also bounds how slowly
	// large messages may arrive while requests wait for memory. See Server.MemoryPressure.
	PressureTimeout time.Duration
	// Patient reports whether a peer is exempt from PressureTimeout. Nil exempts none.
	Patient func(*Peer) bool
	// AlivePeriod is the interval of "rpc.alive" on a framed connection whose requests are not
	// read: 2 s.
	AlivePeriod time.Duration
	// Identify returns the identity of the client of an accepted connection, for Peer.Identity. It
	// must not block. Nil leaves identities nil.
	Identify func(net.Conn) any
	// OwnerOf returns the owner that a connection's requests are counted against. In each of
	// WorkQueue, SpawnedMax and WaitingMax, an owner's requests may use as many slots as they leave
	// free. Queued requests are served round-robin by owner, and WorkQueue's bound includes running
	// requests. The owner "" has no such bound. OwnerOf must not block. Nil means the owner "" for
	// all.
	OwnerOf func(*Peer) string
	// Guard may reject a request by its peer and method name, before its params are read; its error
	// is the answer. It runs on the connection's reader and must not block. Nil rejects nothing.
	Guard func(p *Peer, method string) error
	// MessageBytesOf may lower MessageBytesMax for a connection's requests, for example if its
	// client is not authenticated. It is called when a request begins to arrive, but at most every
	// 100 ms while it does not lower the limit. It runs on the connection's reader and must not
	// block. Nil lowers nothing.
	MessageBytesOf func(p *Peer) int
	// Traced, if it is not nil, is called before the answer of a call that took SlowAfter or more is sent, and of one
	// whose trace is kept. It must be quick: the answer waits for it.
	Traced func(*TracedCall)
	// Failed, if it is not nil, is called likewise for each call that is answered with an error.
	Failed    func(*TracedCall)
	SlowAfter time.Duration
	// TraceEvery makes the server record calls, and keep the traces of one of so many besides those that their callers
	// sample. 0: it records none.
	TraceEvery int
	// Admit returns a function that admits calls of a method on the goroutine of their handler. If
	// that function returns an error, the error is the answer. Admit is called once per registered
	// method and may panic for an unknown one. A nil Admit or a nil function admits all calls.
	Admit func(method string) func(*Call) error
	// Logger gets warnings about connections and handlers: slog.Default().
	Logger *slog.Logger
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

func (c ServerConfig) withDefaults() ServerConfig {
	orDefault(&c.MessageBytesMax, 320<<20)
	orDefault(&c.InFlightMax, 1024)
	orDefault(&c.MemoryBytesMax, 1<<30)
	orDefault(&c.UnsentBytesMax, 16<<20)
	orDefault(&c.ConnsMax, 4096)
	orDefault(&c.Workers, 6*runtime.GOMAXPROCS(0))
	orDefault(&c.WorkQueue, 1024)
	orDefault(&c.SpawnedMax, 256)
	orDefault(&c.WaitingMax, 16384)
	orDefault(&c.AdmitWait, time.Second)
	orDefault(&c.RetryAfter, 100*time.Millisecond)
	orDefault(&c.MessageTimeout, 30*time.Second)
	orDefault(&c.InputEndGrace, 5*time.Second)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.PressureTimeout, 1500*time.Millisecond)
	orDefault(&c.AlivePeriod, 2*time.Second)
	if c.OnConns == nil {
		c.OnConns = func(int) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate checks the configuration, whose defaults must have been filled in.
func (c ServerConfig) Validate() error {
	switch {
	case c.MessageBytesMax < 64<<10 || c.MessageBytesMax > 1<<30:
		return fmt.Errorf("message bytes max is %d, want 64 KiB to 1 GiB", c.MessageBytesMax)
	case c.MemoryBytesMax < int64(c.MessageBytesMax):
		return fmt.Errorf("memory bytes max %d is below message bytes max %d", c.MemoryBytesMax, c.MessageBytesMax)
	case c.InFlightMax < 1 || c.UnsentBytesMax < 1 || c.ConnsMax < 1 || c.Workers < 1 || c.WorkQueue < 1 || c.SpawnedMax < 1 || c.WaitingMax < 1:
		return errors.New("a limit is below 1")
	case c.ReservedConns < 0 || c.ReservedConns >= c.ConnsMax:
		return fmt.Errorf("reserved conns is %d, want 0 to less than conns max, %d", c.ReservedConns, c.ConnsMax)
	case c.ReservedMemory < 0 || c.ReservedMemory >= c.MemoryBytesMax:
		return fmt.Errorf("reserved memory is %d, want 0 to less than memory bytes max, %d", c.ReservedMemory, c.MemoryBytesMax)
	case c.AdmitWait < 0 || c.RetryAfter < 0 || c.MessageTimeout < 0 || c.FirstByteTimeout < 0 || c.InputEndGrace < 0 || c.WriteTimeout < 0 || c.PressureTimeout < 0 || c.AlivePeriod < 0:
		return errors.New("a duration is negative")
	}
	return nil
}

// Mode selects the goroutine on which a method's handler runs.
type Mode uint8

const (
	// Inline runs the handler on the connection's reader. It must not block or take long, since the
	// connection is not read meanwhile. It may pass the Call on and return. This is the fastest
	// mode for reads from memory and for writes that a committer answers.
	Inline Mode = iota
	// Pooled runs the handler on one of a fixed number of workers.
	Pooled
	// Spawned runs the handler on one of up to SpawnedMax goroutines: for methods that may block
	// for long.
	Spawned
	// Waiting is for methods that wait for other callers, perhaps for minutes. Their handlers run
	// on up to WaitingMax separate goroutines, so that they do not delay Spawned methods.
	Waiting
)

type method struct {
	name    string
	mode    Mode
	handler func(*Call)
	admit   func(*Call) error // nil admits all
	stats   methodStats
}

// Server answers requests in both modes on any number of listeners.
type Server struct {
	cfg      ServerConfig
	log      *slog.Logger
	methods  map[string]*method
	claims   [256]*claimed
	memory   *gate
	buffers  *gate // bytes that read buffers have grown by
	work     workQueue
	short    spawner // Spawned methods
	long     spawner // Waiting methods
	count    counters
	pressure memoryPressure
	warner   loglimit.Warner // warnings about connections

	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	start  sync.Once
	active sync.WaitGroup // connections, and goroutines of Spawned and Waiting methods
	pool   sync.WaitGroup // workers

	// mu guards the fields in it. Never held across I/O or a handler.
	mu struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		conns     map[uint64]*serverConn // by id
		nextID    uint64
		draining  bool          // set by Shutdown and Close
		idle      chan struct{} // closed when draining and no connection is left
	}
}

// NewServer returns a server without methods. The only error is that of Validate.
func NewServer(cfg ServerConfig) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, methods: make(map[string]*method), memory: newGate(cfg.MemoryBytesMax, cfg.ReservedMemory), buffers: newGate(cfg.MemoryBytesMax/4, 0),
	}
	s.work.init(cfg.WorkQueue+cfg.Workers, max(1, cfg.Workers*2/3))
	s.short.init(cfg.SpawnedMax)
	s.long.init(cfg.WaitingMax)
	s.short.calls, s.short.goroutinesMax, s.short.idleMax = make(chan *Call), int64(cfg.SpawnedMax), int64(cfg.SpawnedMax)
	s.long.calls, s.long.goroutinesMax, s.long.idleMax = make(chan *Call), int64(cfg.WaitingMax), min(int64(cfg.SpawnedMax), int64(cfg.WaitingMax))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[uint64]*serverConn)
	s.mu.idle = make(chan struct{})
	return s, nil
}

// Handle registers h for a method. It must be called before the first Serve. It panics if the
// method has a handler or its name is empty or over 128 bytes.
func (s *Server) Handle(name string, mode Mode, h func(*Call)) {
	if s.methods[name] != nil || name == "" || len(name) > methodBytesMax {
		panic(fmt.Sprintf("BUG: method %q registered twice, or bad name", name))
	}
	m := &method{name: name, mode: mode, handler: h}
	if s.cfg.Admit != nil {
		m.admit = s.cfg.Admit(name)
	}
	s.methods[name] = m
}

// Methods returns the names of all registered methods, sorted.
func (s *Server) Methods() []string { return slices.Sorted(maps.Keys(s.methods)) }

// Serve accepts connections until the listener fails or the server is closed. It
// closes the listener. After Shutdown or Close it returns ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.addListener(l) {
		return ErrServerClosed
	}
	defer s.removeListener(l)
	pauses := timing.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := l.Accept()
		if err == nil {
			pauses.Reset()
			s.ServeConn(conn)
			continue
		}
		if s.stopping() {
			return ErrServerClosed
		}
		var ne net.Error
		if !errors.As(err, &ne) || errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept: %w", err)
		}
		// Most likely out of file descriptors, which other connections free when they close.
		pause := pauses.Next()
		s.log.Warn("accept error", "err", err, "pause", pause)
		timing.Sleep(s.ctx, pause)
	}
}

// ServeConn serves one connection in the background. The server then owns it.
func (s *Server) ServeConn(nc net.Conn) {
	s.start.Do(s.startWorkers)
	s.mu.Lock()
	s.mu.nextID++
	c := newServerConn(s, nc, s.mu.nextID)
	most := s.cfg.ConnsMax
	if !c.preferred.Load() {
		most -= s.cfg.ReservedConns
	}
	if s.mu.draining || len(s.mu.conns) >= most {
		s.mu.Unlock()
		s.count.refusedConns.Add(1)
		c.peer.cancel()
		_ = nc.Close()
		return
	}
	s.mu.conns[c.peer.ID] = c
	s.active.Go(c.serve)
	s.mu.Unlock()
	s.count.conns.Add(1)
	s.cfg.OnConns(1)
}

// forget removes a connection that has ended.
func (s *Server) forget(c *serverConn) {
	s.mu.Lock()
	delete(s.mu.conns, c.peer.ID)
	if s.mu.draining && len(s.mu.conns) == 0 {
		s.closeIdleLocked()
	}
	s.mu.Unlock()
	s.count.conns.Add(-1)
	s.cfg.OnConns(-1)
}

// detach removes a claimed connection from the server. It reports false if the server is stopping
// and may be about to close it.
func (s *Server) detach(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.draining {
		return false
	}
	delete(s.mu.conns, c.peer.ID)
	return true
}

func (s *Server) closeIdleLocked() {
	select {
	case <-s.mu.idle:
	default:
		close(s.mu.idle)
	}
}

func (s *Server) snapshot() []*serverConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	cs := make([]*serverConn, 0, len(s.mu.conns))
	for _, c := range s.mu.conns {
		cs = append(cs, c)
	}
	return cs
}

func (s *Server) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.draining
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.draining {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	return true
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

// stopListening begins the drain: the server accepts no new connections.
func (s *Server) stopListening() {
	s.mu.Lock()
	s.mu.draining = true
	ls := make([]net.Listener, 0, len(s.mu.listeners))
	for l := range s.mu.listeners {
		ls = append(ls, l)
	}
	if len(s.mu.conns) == 0 {
		s.closeIdleLocked()
	}
	s.mu.Unlock()
	for _, l := range ls {
		_ = l.Close()
	}
	for _, cl := range s.claims {
		if cl != nil {
			_ = cl.Close()
		}
	}
}

// Shutdown stops accepting connections and drains the open ones: framed clients get a goaway, plain
// connections are no longer read. It waits until requests in flight are answered, then closes
// everything. If ctx ends first, it closes the rest as Close does and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopListening()
	for _, c := range s.snapshot() {
		c.drain()
	}
	var err error
	select {
	case <-s.mu.idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Close()
	return err
}

// Close closes listeners and connections at once, cancels the contexts of calls, and waits for the
// handlers on the server's goroutines. Later responses are dropped. It must not be called from a
// handler.
func (s *Server) Close() {
	s.stopListening()
	for _, c := range s.snapshot() {
		c.kill(ErrServerClosed)
	}
	s.cancel() // after the connections are closed, so that the resulting errors are not sent
	s.work.close()
	s.active.Wait()
	s.pool.Wait()
}
