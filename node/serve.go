package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/steledb/stele/rpc"
)

// serve opens the node to clients.
func (n *Node) serve(listener net.Listener) error {
	b := n.cfg.budget()
	server, err := rpc.NewServer(rpc.ServerConfig{
		MessageBytesMax: int(b.message), MemoryBytesMax: b.rpc, SpawnedMax: spawnedMax,
		Logger: n.log.With("part", "rpc"),
	})
	if err != nil {
		return err
	}
	n.rpc = server
	n.handleData()
	n.handleAdmin()
	stop := n.cursors.start()
	n.background.Go(func() { n.cursors.sweep(stop) })
	if err := n.serveHTTP(); err != nil {
		return err
	}
	n.background.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, rpc.ErrServerClosed) {
			n.fail(fmt.Errorf("serve clients: %w", err))
		}
	})
	return nil
}

// spawnedMax is how many calls may run that wait for the disk or for each other:
// as many as clients have in flight under heavy load.
const spawnedMax = 1024

// serveHTTP serves metrics, health and profiles.
func (n *Node) serveHTTP() error {
	if n.cfg.HTTP == "off" {
		return nil
	}
	l, err := net.Listen("tcp", n.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	n.webAddr = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", n.health)
	mux.HandleFunc("GET /readyz", n.health)
	// Profiles tell of the program, not of the data; the port is loopback's by default.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	n.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	n.background.Go(func() {
		if err := n.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("serve HTTP", "error", err)
		}
	})
	return nil
}

// health answers 200 while the node serves, and else 503 and why.
func (n *Node) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason := n.unready(); reason != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, reason)
		return
	}
	fmt.Fprintln(w, "ok")
}

// unready says why the node does not serve, or nothing if it does.
func (n *Node) unready() string {
	if err := n.Err(); err != nil {
		return err.Error()
	}
	if !n.serving.Load() {
		return "starting or stopping"
	}
	if !n.group.Stats().Ready {
		return "the lock service is not ready"
	}
	if err := n.tablets.Stats().Blocked; err != nil {
		return fmt.Sprintf("writes wait: memtables cannot be written out: %v", err)
	}
	return ""
}
