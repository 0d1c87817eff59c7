package world

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/raftmeta/storage"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
	"github.com/steledb/stele/test/simulation/simnet"
)

// hostState is what a host does.
type hostState int

const (
	down     hostState = iota // no process, or no power
	starting                  // its process has not begun to serve
	serving
	closing // its process stops in an orderly way
)

// A host is a machine with a disk, a network, and at most one process, a node.
type host struct {
	w    *World
	name string
	net  *simnet.Host
	disk *simdisk.Disk
	cfg  node.Config
	hostMarks

	process int // of the last start
	state   hostState
	frozen  bool
	node    *node.Node
	// exited has the process that has ended by itself. Its capacity is one.
	exited chan int
	// wall and drift are those of the machine's clock.
	wall  time.Duration
	drift int64
}

func (w *World) newHost() *host {
	i := w.created
	w.created++
	h := &host{w: w, name: fmt.Sprint(w.clusterNames.host, i+1), net: w.net.Host(fmt.Sprint(w.network, i+1)), exited: make(chan int, 1)}
	h.disk = h.newDisk(w.streams + uint64(i) + 1)
	h.cfg = node.Config{
		DataDirs: []string{"/data"}, Listen: h.address(), Gossip: h.net.IP() + ":7107", HTTP: "off", MemoryBytes: node.MemoryMin,
		Name: h.name, Zone: fmt.Sprintf("zone-%d", i%w.plan.zones), Expect: w.plan.nodes, ReserveBytes: w.plan.reserveBytes, ExtentBytes: w.plan.extentBytes, Tuning: w.plan.tuning,
		VoterStable: w.plan.voterStable,
		Network:     network{h.net}, Logger: w.trace.logger(h.name),
	}
	h.cfg.Waiting = func(what string) { h.waits = what }
	return h
}

func (h *host) newDisk(stream uint64) *simdisk.Disk {
	return simdisk.New(simdisk.Config{Rand: rand.New(rand.NewPCG(h.w.cfg.Seed, stream)), Events: h.w.diskEvent(h.name), Now: machine.Now,
		Read: simdisk.SSD.Read, Sync: simdisk.SSD.Sync, Capacity: h.w.plan.diskBytes})
}

func (h *host) address() string { return h.net.IP() + ":7106" }

// network implements node.Network.
type network struct{ *simnet.Host }

// Gossip implements node.Network.
func (n network) Gossip(address string, _ *log.Logger) (gossip.Sockets, error) {
	g, err := n.Host.Gossip(address)
	if err != nil {
		return nil, err
	}
	return sockets{g}, nil
}

// sockets implements gossip.Sockets.
type sockets struct{ *simnet.Gossip }

// Port implements gossip.Sockets.
func (s sockets) Port() int { return s.GetAutoBindPort() }

// start starts a process. The host has none.
func (h *host) start() {
	fs := h.disk.FS()
	h.w.processes++
	process := h.w.processes
	h.process, h.state, h.node, h.frozen, h.waits = process, starting, nil, false, "its process"
	cfg := h.cfg
	cfg.FS, cfg.OpenRaftLog = fs, func(file string) (storage.Backend, error) { return simdisk.OpenRaftLog(fs, file) }
	h.w.trace.addf(h.name, "starts as process %d", process)
	machine.Start(process, func() {
		n, err := node.Start(context.Background(), cfg)
		if err == nil {
			h.node, h.state, h.id = n, serving, n.ID()
			<-n.Done()
			if err = n.Err(); err == nil {
				return // by stop
			}
		}
		h.w.trace.addf(h.name, "exits: %v", err)
		h.judgeExit(process, err)
		h.exited <- process
	})
	h.setClock()
}

func (h *host) setClock() { machine.SetClock(h.process, h.wall, h.drift) }

// kill ends the process like kill -9, or with the power of the host.
func (h *host) kill(power bool) {
	if h.state == down {
		return
	}
	h.w.trace.addf(h.name, "killed, power loss: %t", power)
	machine.Kill(h.process)
	h.net.Kill(power)
	h.disk.Crash(power)
	h.state, h.node, h.frozen = down, nil, false
}

// up starts the process again, if the host is down.
func (h *host) up() {
	if h.state == down && !h.gone {
		h.net.Up()
		h.start()
	}
}

// stop stops the process in an orderly way. It returns when the process has ended, or after a
// while kills it, as systemd does.
func (h *host) stop() {
	n, process := h.node, h.process
	if h.state != serving || n == nil {
		return
	}
	h.state = closing
	done := make(chan struct{}, 1)
	machine.Start(process, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := n.Close(ctx)
		h.w.trace.addf(h.name, "stopped: %v", err)
		done <- struct{}{}
	})
	select {
	case <-done:
	case <-time.After(20 * time.Second):
	}
	if h.process == process {
		h.kill(false)
	}
}

// supervise restarts a process that has ended by itself, like systemd.
func (h *host) supervise(done <-chan struct{}) {
	for {
		select {
		case process := <-h.exited:
			if process != h.process || h.state == down || h.gone {
				continue
			}
			h.kill(false)
			h.w.count("exits")
			if h.broken {
				h.w.operators().replace(h)
				return
			}
			time.Sleep(time.Second)
			h.up()
		case <-done:
			return
		}
	}
}

func (h *host) freeze() {
	if h.state != down && !h.frozen {
		h.frozen = true
		machine.Stop(h.process)
	}
}

func (h *host) thaw() {
	if h.frozen {
		h.frozen = false
		machine.Continue(h.process)
	}
}
