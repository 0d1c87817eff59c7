package registry

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// hostileCluster is a node of a cluster that answers what it likes.
type hostileCluster struct {
	addr     string
	handlers map[string]func(c *rpc.Call) // by method; others answer as the node of a small cluster
}

const hostileID = "other"

func newHostileCluster(t *testing.T, handlers map[string]func(c *rpc.Call)) *hostileCluster {
	t.Helper()
	h := &hostileCluster{handlers: handlers}
	srv, err := rpc.NewServer(rpc.ServerConfig{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range api.Methods() {
		srv.Handle(method, rpc.Spawned, func(c *rpc.Call) { h.answer(method, c) })
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Close)
	h.addr = l.Addr().String()
	return h
}

func (h *hostileCluster) answer(method string, c *rpc.Call) {
	if answer := h.handlers[method]; answer != nil {
		answer(c)
		return
	}
	switch method {
	case api.MethodRoot:
		c.Reply((&api.RootInfo{}).Append)
	case api.MethodStatus:
		c.Reply(goodStatus().Append)
	default:
		c.Fail(rpc.CodeUnknownMethod)
	}
}

func goodStatus() *api.Status {
	return &api.Status{Cluster: hostileID, Node: "n", Version: "v1", Ready: true, Nodes: 1, NodesAlive: 1, Replicas: 1, LogReplicas: 1}
}

// of answers one method with bytes.
func of(method string, write func(e *wire.Encoder)) map[string]func(c *rpc.Call) {
	e := wire.GetEncoder()
	defer e.Release()
	write(e)
	b := bytes.Clone(e.Bytes())
	return map[string]func(c *rpc.Call){method: func(c *rpc.Call) { c.Reply(func(e *wire.Encoder) { e.Raw(b) }) }}
}

func statusOf(change func(s *api.Status)) map[string]func(c *rpc.Call) {
	s := goodStatus()
	change(s)
	return of(api.MethodStatus, s.Append)
}

// manyMaps encodes an array of n empty maps.
func manyMaps(e *wire.Encoder, n int) {
	e.Raw(append(binary.BigEndian.AppendUint32([]byte{0xdd}, uint32(n)), bytes.Repeat([]byte{0x80}, n)...))
}

// nodesOf encodes the nodes of list_nodes.
func nodesOf(nodes ...api.NodeInfo) func(e *wire.Encoder) {
	return func(e *wire.Encoder) { api.AppendNodes(e, nodes) }
}

const mib = 1 << 20

var hostileClusters = map[string]struct {
	handlers map[string]func(c *rpc.Call)
	want     string // in the sentence; empty: the cluster is shown
}{
	"a version of 15 MiB":       {statusOf(func(s *api.Status) { s.Version = strings.Repeat("v", 15*mib) }), ""},
	"a reason of 15 MiB":        {statusOf(func(s *api.Status) { s.Reason, s.Ready = strings.Repeat("\x1b[2J", 4*mib-1000), false }), ""},
	"an answer of 17 MiB":       {statusOf(func(s *api.Status) { s.Version = strings.Repeat("v", 17*mib) }), "message too large"},
	"the id of another":         {statusOf(func(s *api.Status) { s.Cluster = strings.Repeat("\x1b]0;x\a", mib) }), "answers at these addresses"},
	"negative numbers":          {statusOf(func(s *api.Status) { s.Nodes, s.NodesAlive, s.Tables, s.Tablets = math.MinInt64, math.MaxInt64, -1, -1 }), ""},
	"more nodes than there are": {statusOf(func(s *api.Status) { s.Nodes, s.NodesAlive = 1, math.MaxInt64 }), ""},
	"disks of negative sizes": {statusOf(func(s *api.Status) {
		s.Disks = []api.DiskStatus{{Path: "p", TotalBytes: math.MinInt64, FreeBytes: math.MaxInt64, UsedBytes: -1}}
	}), ""},
	"a time that is no number": {of(api.MethodStatus, func(e *wire.Encoder) {
		e.Map(4)
		e.Str("cluster")
		e.Str(hostileID)
		e.Str("ready")
		e.Bool(true)
		e.Str("uptime_s")
		e.Float(math.NaN())
		e.Str("nodes")
		e.Int(1)
	}), ""},
	"a text instead of a status": {of(api.MethodStatus, func(e *wire.Encoder) { e.Str("status") }), "want map"},
	"ten million disks": {of(api.MethodStatus, func(e *wire.Encoder) {
		e.Map(1)
		e.Str("disks")
		manyMaps(e, 10_000_000)
	}), "disks"},
	"disks without fields": {of(api.MethodStatus, func(e *wire.Encoder) {
		e.Map(1)
		e.Str("disks")
		manyMaps(e, 9000)
	}), "elements in"},
	"ten million nodes":    {of(api.MethodListNodes, func(e *wire.Encoder) { manyMaps(e, 10_000_000) }), ""},
	"nodes of much memory": {of(api.MethodListNodes, func(e *wire.Encoder) { manyMaps(e, 100_000) }), ""},
	"sizes that overflow": {of(api.MethodListNodes, nodesOf(
		api.NodeInfo{ID: "n1", State: api.NodeAlive, CapacityBytes: math.MaxInt64, FreeBytes: math.MaxInt64, DiskGrowthBytes: math.MinInt64, DiskGrowthOverS: math.MaxInt64},
		api.NodeInfo{ID: "n1", State: api.NodeAlive, CapacityBytes: math.MaxInt64, FreeBytes: math.MinInt64, DiskGrowthBytes: math.MinInt64, DiskGrowthOverS: 1})), ""},
	"a free space over the size": {of(api.MethodListNodes, nodesOf(api.NodeInfo{ID: "n1", State: api.NodeAlive, CapacityBytes: 5, FreeBytes: math.MaxInt64})), ""},
	"dead nodes at any address":  {of(api.MethodListNodes, nodesOf(manyNodes(5000)...)), ""},
	"errors of 16 KiB":           {map[string]func(c *rpc.Call){api.MethodStatus: func(c *rpc.Call) { c.Fail(&rpc.Error{Code: 31999, Message: strings.Repeat("\a\xff", 8<<10)}) }}, "code_31999"},
	"no answer":                  {map[string]func(c *rpc.Call){api.MethodStatus: func(c *rpc.Call) { c.Retain() }}, "deadline"},
	"METADATA without end":       {endlessMetadata(), ""},
}

func manyNodes(n int) (all []api.NodeInfo) {
	for range n {
		all = append(all, api.NodeInfo{ID: "n", Name: "\x1b[31m", State: api.NodeDead, RPC: "127.0.0.1:1"})
	}
	return all
}

// endlessMetadata answers scans of METADATA with ever more tablets, each of a node of its own.
func endlessMetadata() map[string]func(c *rpc.Call) {
	var n atomic.Uint64
	batch := func(c *rpc.Call) {
		c.Reply(func(e *wire.Encoder) {
			w := api.BeginScan(e)
			for range 1000 {
				end := binary.BigEndian.AppendUint64(nil, n.Add(1))
				row := metadata.Row{Table: 7, End: end}
				w.Row(row.Key(), []table.Cell{
					{Family: "loc", Qualifier: []byte("generation"), Value: end},
					{Family: "loc", Qualifier: []byte("server"), Value: strs("n"+string(end), "addr")},
					{Family: "log", Qualifier: []byte("recoveries"), Value: strs(string(end))},
				})
			}
			w.End(1, nil)
		})
	}
	return map[string]func(c *rpc.Call){api.MethodScanOpen: batch, api.MethodScanNext: batch}
}

// strs encodes an array of texts.
func strs(all ...string) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(len(all))
	for _, s := range all {
		e.Str(s)
	}
	return bytes.Clone(e.Bytes())
}

// TestHostileCluster (RG4): whatever a cluster answers, it is shown, or what is wrong, in bounded texts that are safe on terminals, in bounded time and memory.
func TestHostileCluster(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), ClusterID: func() string { return "own" }})
	most := watchHeap(t)
	t.Cleanup(func() { // after all cases
		if n := most() >> 20; n > 600 {
			t.Errorf("%d MiB of memory", n)
		}
	})
	for name, x := range hostileClusters {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h := newHostileCluster(t, x.handlers)
			began := time.Now()
			got := s.ask(t.Context(), "there", &record{addrs: []string{h.addr}, id: hostileID})
			if d := time.Since(began); d > askTimeout+2*time.Second {
				t.Errorf("took %v", d)
			}
			t.Log(got.State, got.Sentence, len(got.Problems))
			if x.want == "" == (got.State == api.ClusterUnreachable) || !strings.Contains(got.Sentence, x.want) {
				t.Errorf("state %q: %s", got.State, got.Sentence)
			}
			checkShown(t, &got)
			if _, err := s.check(t.Context(), &api.AddClusterRequest{Name: "x", Addrs: []string{h.addr}}); x.want != "" && !strings.Contains(x.want, "answers at") && err == nil {
				t.Error("the cluster was added")
			} else if err != nil && (!errors.Is(err, rpc.CodeBadRequest) || len(err.Error()) > 2*problemBytesMax) {
				t.Errorf("added: %.1000v", err)
			}
		})
	}
}

// checkShown checks what is shown of a cluster.
func checkShown(t *testing.T, x *api.ClusterInfo) {
	t.Helper()
	if _, err := json.Marshal(x); err != nil {
		t.Error(err)
	}
	for _, text := range append([]string{x.Sentence, x.Version, x.State, x.ID}, x.Problems...) {
		if len(text) > problemBytesMax || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("a text of %d bytes, or with control characters: %.100q", len(text), text)
		}
	}
	if x.Nodes < 0 || x.NodesAlive < 0 || x.NodesAlive > x.Nodes || x.Tablets < -1 || x.DiskBytes < 0 || x.DiskFree < 0 || x.DiskFree > x.DiskBytes || len(x.Problems) > api.ClusterProblemsMax {
		t.Errorf("%+v", x)
	}
}

// watchHeap returns a function that returns by how many bytes the heap has grown at most.
func watchHeap(t *testing.T) (most func() uint64) {
	runtime.GC()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, peak, done, ended := heap(), atomic.Uint64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if now := heap(); now > before && now-before > peak.Load() {
				peak.Store(now - before)
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return peak.Load
}
