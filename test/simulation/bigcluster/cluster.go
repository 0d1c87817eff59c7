package bigcluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simnet"
)

// Config configures a run.
type Config struct {
	Nodes   int // when all have started; at least firstNodes
	Tablets int // of the user table
	Lookups int // clients with an empty cache
	Seed    uint64
	Log     io.Writer // of the nodes and the phases; io.Discard for none
	// Only selects the phases after the start by their names. Empty selects all.
	Only []string
	// AfterPhase, if not nil, is called after each phase.
	AfterPhase func(name string)
}

// Result is what a run has measured.
type Result struct {
	Nodes, Tablets int
	Phases         []Phase
	// Problems are what should not have happened. The figures of a run with problems are worth little.
	Problems []string
}

// Cluster is a simulated cluster.
type Cluster struct {
	cfg       Config
	net       *simnet.Network
	hosts     []*host
	clients   []*simnet.Host
	processes int // started so far; the first is that of the clients
	result    Result
	db        *client.Client // the operator's
	tablets   int            // that the user table has by now
	changes   int            // of its schema
}

// Run runs a cluster through its phases. A program can run one.
func Run(cfg Config) Result {
	machine.Seed(cfg.Seed)
	c := &Cluster{cfg: cfg, processes: clientProcess, result: Result{Nodes: cfg.Nodes, Tablets: cfg.Tablets}}
	c.net = simnet.New(simnet.Config{Rand: rand.New(rand.NewPCG(cfg.Seed, 0x6e6574)), Now: machine.Now, Backlog: backlog})
	for i := range cfg.Nodes {
		c.newHost(i % min(cfg.Nodes, racksMax))
	}
	for i := range clientHosts {
		c.clients = append(c.clients, c.net.Host(fmt.Sprintf("10.1.0.%d", i+1)))
	}
	done := make(chan struct{})
	defer close(done)
	go c.collect(done)
	c.run()
	return c.result
}

// backlog is the default of Linux for connections that a listener has not accepted.
const backlog = 4096

// problem records what should not have happened.
func (c *Cluster) problem(format string, args ...any) {
	text := fmt.Sprintf("%.1f s: ", machine.Now().Seconds()) + fmt.Sprintf(format, args...)
	c.result.Problems = append(c.result.Problems, text)
	fmt.Fprintln(c.cfg.Log, "PROBLEM", text)
}

// clientProcess is the process of all clients, which are on clientHosts hosts.
const (
	clientProcess = 1
	clientHosts   = 16
)

// inClients runs f in the process of the clients, and returns its error, or one if it does not end in time.
func (c *Cluster) inClients(limit time.Duration, f func(ctx context.Context) error) error {
	done := make(chan error, 1)
	machine.Start(clientProcess, func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		done <- f(ctx)
	})
	select {
	case err := <-done:
		return err
	case <-time.After(limit + time.Second):
		return fmt.Errorf("not done within %v", limit)
	}
}

// open opens a client on one of the clients' hosts, that knows the address of one node.
func (c *Cluster) open(ctx context.Context, from int, h *host) (*client.Client, error) {
	return client.Open(ctx, h.address(), client.Config{Dial: c.clients[from%len(c.clients)].Dial})
}

// cpu returns the processor time that the program has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Memory is freed when the heap has grown by heapGrowth, in hundredths of what was in use, or by garbageMax bytes.
const (
	heapGrowth   = 35
	garbageMax   = 6 << 30
	collectPause = time.Millisecond
)

// collect frees memory when the heap has grown since the last time.
func (c *Cluster) collect(done <-chan struct{}) {
	limit := uint64(256 << 20)
	for {
		select {
		case <-time.After(collectPause):
			if before := heapBytes(); before > limit {
				machine.Collect()
				fmt.Fprintf(c.cfg.Log, "HEAP %d MB, %d MB in use, %.3f s\n", before>>20, heapBytes()>>20, machine.Now().Seconds())
				used := heapBytes()
				limit = max(256<<20, used+min(used*heapGrowth/100, garbageMax))
			}
		case <-done:
			return
		}
	}
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
