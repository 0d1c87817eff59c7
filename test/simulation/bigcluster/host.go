package bigcluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/tabletserver"
	"github.com/steledb/stele/raftmeta/storage"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
	"github.com/steledb/stele/test/simulation/simnet"
)

// A host is a machine with a disk, a network, and at most one process, a node.
type host struct {
	c      *Cluster
	name   string
	rack   int
	net    *simnet.Host
	disk   *simdisk.Disk
	cfg    node.Config
	gossip gossipCount // of all processes

	process int        // of the last start; 0 before the first
	node    *node.Node // nil unless it serves
	up      bool       // it has a process
}

// Settings of hosts. Nodes have hardly any data.
const (
	racksMax     = 20
	diskBytes    = 2 << 30
	reserveBytes = 8 << 20
	extentBytes  = 64 << 10
	memoryBytes  = 2 << 30  // which hardly any of is used: it decides how many connections a node accepts
	cacheBytes   = 16 << 20 // of users' tables; the cache's own tables would be 2 MB otherwise
	firstNodes   = 5        // that found the cluster, and are its voters
)

// newHost adds a host that has no process.
func (c *Cluster) newHost(rack int) *host {
	i := len(c.hosts)
	h := &host{c: c, name: fmt.Sprintf("node-%d", i+1), rack: rack, net: c.net.Host(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))}
	h.disk = simdisk.New(simdisk.Config{Rand: rand.New(rand.NewPCG(c.cfg.Seed, uint64(i)+1)), Now: machine.Now,
		Read: simdisk.SSD.Read, Sync: simdisk.SSD.Sync, Capacity: diskBytes})
	h.cfg = node.Config{
		DataDirs: []string{"/data"}, Listen: h.address(), Gossip: h.net.IP() + ":7107", HTTP: "off", MemoryBytes: memoryBytes,
		Name: h.name, Zone: fmt.Sprintf("rack-%d", rack), ReserveBytes: reserveBytes, ExtentBytes: extentBytes,
		Tuning:  node.Tuning{Tablets: tabletserver.Sizes{CacheBytes: cacheBytes}},
		Network: network{h.net, &h.gossip}, Logger: c.logger(h.name),
	}
	if i < firstNodes {
		h.cfg.Expect = firstNodes
	}
	for j := range firstNodes {
		h.cfg.Join = append(h.cfg.Join, fmt.Sprintf("10.0.0.%d:7106", j+1))
	}
	c.hosts = append(c.hosts, h)
	return h
}

func (h *host) address() string { return h.net.IP() + ":7106" }

// logger returns the log of a host; without Config.Log it discards.
func (c *Cluster) logger(name string) *slog.Logger {
	if c.cfg.Log == io.Discard {
		return nil
	}
	return slog.New(slog.NewTextHandler(c.cfg.Log, nil)).With("part", name)
}

// start starts a process. The host has none.
func (h *host) start() {
	fs := h.disk.FS()
	h.c.processes++
	process := h.c.processes
	h.process, h.node, h.up = process, nil, true
	cfg := h.cfg
	cfg.FS, cfg.OpenRaftLog = fs, func(file string) (storage.Backend, error) { return simdisk.OpenRaftLog(fs, file) }
	machine.Start(process, func() {
		n, err := node.Start(context.Background(), cfg)
		if err != nil {
			h.c.exited(h, process, err)
			return
		}
		h.node = n
		<-n.Done()
		h.c.exited(h, process, n.Err())
	})
}

// exited records that a process has ended by itself, which none should.
func (c *Cluster) exited(h *host, process int, err error) {
	if h.process == process && h.up {
		c.problem("%s ended: %v", h.name, err)
	}
}

// kill ends the process like a loss of power.
func (h *host) kill() {
	h.node, h.up = nil, false
	machine.Kill(h.process)
	h.net.Kill(true)
	h.disk.Crash(true)
}

// stopTimeout bounds an orderly stop.
const stopTimeout = 20 * time.Second

// restart stops the process in an orderly way and starts another.
func (h *host) restart() {
	n, done := h.node, make(chan struct{}, 1)
	h.up = false
	machine.Start(h.process, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout/2)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			h.c.problem("%s did not stop in an orderly way: %v", h.name, err)
		}
		done <- struct{}{}
	})
	select {
	case <-done:
	case <-time.After(stopTimeout):
		h.c.problem("%s did not stop within %v", h.name, stopTimeout)
	}
	h.kill()
	h.net.Up()
	h.start()
}
