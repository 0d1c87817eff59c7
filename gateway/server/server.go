package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/gateway/bigtableadmin"
	"github.com/steledb/stele/gateway/buffers"
)

// Limits of connections.
const (
	streamsMax       = 1000 // of a connection
	headerBytesMax   = 16 << 10
	handshakeTimeout = 10 * time.Second
	// pingPeriodMin is the shortest period in which a client may ping: Google's Java client does so
	// every 30 s.
	pingPeriodMin = 10 * time.Second
	// silenceMax is how long a connection may be silent before the server pings it.
	silenceMax = time.Minute
	// idleMax is how long a connection without calls stays open.
	idleMax = 10 * time.Minute
	// requestBytesMax bounds a request: the largest row mutation, and the largest batch of Google's
	// clients. With little memory the bound is lower.
	requestBytesMax = 257 << 20
	// streamWorkers is how many goroutines are kept for calls, so that each call does not grow a stack of its own. More calls than that at a time have
	// goroutines of their own.
	streamWorkers = 64
	// memoryDefault is the default of Config.MemoryBytes.
	memoryDefault = 256 << 20
)

// Config is what a Server needs.
type Config struct {
	Data  bigtable.Config
	Admin bigtableadmin.Config
	// Caller, unless it is nil, returns the caller of an accepted connection.
	Caller func(net.Conn) Caller
	// MemoryBytes bounds the memory of calls. Zero means 256 MiB.
	MemoryBytes int64
	// Logger gets panics of handlers. Nil discards them.
	Logger *slog.Logger
}

// ConnsMax returns the number of connections of a server with that Config.MemoryBytes.
func ConnsMax(memoryBytes int64) int { return connsMax(memoryBytes) }

// Server serves the API. It is created by New.
type Server struct {
	grpc   *grpc.Server
	data   *bigtable.Service
	memory *memory
	caller func(net.Conn) Caller
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MemoryBytes == 0 {
		cfg.MemoryBytes = memoryDefault
	}
	m := newMemory(cfg.MemoryBytes)
	cfg.Data.Reserve, cfg.Data.AdmitSession, cfg.Data.DecodedBytesMax = m.reserve, m.admitSession, m.mostDecoded()
	cfg.Data.GroupBytes = m.groupBytes()
	data := bigtable.New(cfg.Data)
	cfg.Admin.ProfilesChanged = data.ProfilesChanged
	g := guard{cfg.Logger}
	s := &Server{memory: m, data: data, caller: cfg.Caller, grpc: grpc.NewServer(
		grpc.Creds(connCredentials{}),
		grpc.ForceServerCodecV2(bigtable.Codec()),
		grpc.MaxConcurrentStreams(streamsMax), grpc.MaxHeaderListSize(headerBytesMax), grpc.MaxRecvMsgSize(int(max(m.mostGrouped(), m.mostReceived()))),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.WaitForHandlers(true), grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingPeriodMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silenceMax, MaxConnectionIdle: idleMax}),
		grpc.ReadBufferSize(0), experimental.BufferPool(buffers.Pool), grpc.InTapHandle(m.tapped), // a conn has the buffer
		grpc.ChainStreamInterceptor(g.stream, m.admit, data.Stream), grpc.UnknownServiceHandler(unknown),
	)}
	services := bigtable.Streams(s.grpc, m.reserve)
	data.Register(services)
	bigtableadmin.New(cfg.Admin).Register(services)
	return s
}

// Requests returns the requests of the data API by app profile.
func (s *Server) Requests() []bigtable.RequestCounts { return s.data.Requests() }

// Serve serves the connections of a listener, which it closes, until Shutdown. Then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(listener{l, s.memory, s.caller}); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown accepts no further calls, asks clients to close their sessions, and waits for both until ctx
// ends. Then it cancels them.
func (s *Server) Shutdown(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.data.Drain()
	s.grpc.GracefulStop()
}
