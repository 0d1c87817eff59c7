package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

// TestMain runs the test binary as a node when a test asks for one: a process
// that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STELE_TEST_NODE_DIR"); dir != "" {
		cfg := node.Config{DataDirs: []string{dir}, Listen: os.Getenv("STELE_TEST_NODE_ADDR"), Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20}
		if ports := os.Getenv("STELE_TEST_NODE_PORTS"); ports != "" { // of gossip and HTTP
			fmt.Sscan(ports, &cfg.Gossip, &cfg.HTTP)
			cfg.Security = os.Getenv("STELE_TEST_NODE_SECURITY")
			cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		os.Exit(runNode(cfg))
	}
	os.Exit(m.Run())
}

func runNode(cfg node.Config) int {
	n, err := node.Start(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	select {
	case <-term:
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case <-n.Done():
		fmt.Fprintln(os.Stderr, n.Err())
		return 1
	}
}

// process is a node in a process of its own.
type process struct {
	t    testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
}

func newProcess(t testing.TB) *process {
	addr, err := testport.New()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, dir: t.TempDir(), addr: addr}
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *process) start(log io.Writer) {
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), "STELE_TEST_NODE_DIR="+p.dir, "STELE_TEST_NODE_ADDR="+p.addr)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// client connects to the node, as soon as it serves.
func (p *process) client(ctx context.Context) *client.Client {
	p.t.Helper()
	for {
		c, err := client.Open(ctx, p.addr, client.Config{Conns: 2, RetriesPerSecond: 10_000})
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			p.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // SIGKILL; an error means that it has ended already
	_ = p.cmd.Wait()         // the error is "killed"
	p.cmd = nil
}

// registerOp is an operation on a row that holds one value.
type registerOp struct {
	kind     string // "get", "put", "delete", "cas" (from Expect to Value), "append"
	row      string
	value    string
	expected string
}

type registerResult struct {
	unknown bool
	value   string // of get and append
	matched bool   // of cas
}

// registerModel is what a row must look like from outside (I2).
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRow := map[string][]porcupine.Operation{}
		for _, op := range history {
			row := op.Input.(registerOp).row
			byRow[row] = append(byRow[row], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byRow {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		value, in, out := state.(string), input.(registerOp), output.(registerResult)
		switch in.kind {
		case "get":
			return out.value == value, value
		case "put":
			return true, in.value
		case "delete":
			return true, ""
		case "append":
			return out.unknown || out.value == value+in.value, value + in.value
		default: // cas
			match := value == in.expected
			if match {
				value = in.value
			}
			return out.unknown || out.matched == match, value
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// history collects operations of many clients.
type history struct {
	sync.Mutex
	ops   []porcupine.Operation
	start time.Time
}

// record runs do and keeps the operation, unless it surely did nothing.
func (h *history) record(clientID int, in registerOp, do func() (registerResult, error)) {
	call := time.Since(h.start).Nanoseconds()
	out, err := do()
	op := porcupine.Operation{ClientId: clientID, Input: in, Call: call, Output: out, Return: time.Since(h.start).Nanoseconds()}
	if err != nil {
		if in.kind == "get" || !errors.Is(err, client.ErrAmbiguous) {
			return // nothing was executed, or nothing was learnt
		}
		// It may take effect at any time from now on, or never: as good as at the end.
		op.Output, op.Return = registerResult{unknown: true}, math.MaxInt64
	}
	h.Lock()
	h.ops = append(h.ops, op)
	h.Unlock()
}

const column = "f:v"

func runRegisterOp(ctx context.Context, tab *client.Table, in registerOp) (out registerResult, err error) {
	switch in.kind {
	case "get":
		var row *table.Row
		if row, err = tab.Get(ctx, in.row); err == nil && row != nil {
			out.value = string(row.Cells[0].Value)
		}
	case "put":
		err = tab.Apply(ctx, client.NewRowMutation(in.row).Set(column, []byte(in.value)))
	case "delete":
		err = tab.Apply(ctx, client.NewRowMutation(in.row).DeleteRow())
	case "append":
		var v []byte
		v, err = tab.Append(ctx, in.row, column, []byte(in.value))
		out.value = string(v)
	case "cas":
		to := client.NewRowMutation(in.row).Set(column, []byte(in.value))
		if in.expected == "" { // no such row
			var there bool
			there, err = tab.CheckAndMutate(ctx, in.row, nil, nil, to)
			out.matched = !there
			break
		}
		is := table.Chain{table.CellsPerColumnLimit(1), table.ValueRange{Start: table.Closed([]byte(in.expected)), End: table.Closed([]byte(in.expected))}}
		out.matched, err = tab.CheckAndMutate(ctx, in.row, is, to, nil)
	}
	return out, err
}

// I1, I2: 64 clients, one node that is killed again and again.
func TestLinearizableThroughKills(t *testing.T) {
	t.Parallel()
	seed := testseed.New(t)
	duration := 6 * time.Second
	if testing.Short() {
		duration = 2 * time.Second
	}
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil {
		duration *= time.Duration(times)
	}
	t.Log("the order of events differs from run to run")
	p := newProcess(t)
	p.start(os.Stderr)
	ctx, cancel := context.WithTimeout(context.Background(), duration+60*time.Second)
	defer cancel()
	c := p.client(ctx)
	defer c.Close()
	spec, err := table.ParseFamilySpec("f:versions=1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "registers", spec); err != nil {
		t.Fatal(err)
	}
	h := &history{start: time.Now()}
	end := h.start.Add(duration)
	// Each row lives through one kill or two: with more, mutations of unknown
	// outcome pile up on it, and the search for an order takes for ever.
	var era atomic.Int64
	var clients sync.WaitGroup
	for id := range 64 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			last := "" // what this client saw last, so that some cas match
			for n := 0; time.Now().Before(end); n++ {
				in := registerOp{row: fmt.Sprintf("r%d-%d", era.Load()-r.Int64N(2), r.IntN(24)), value: fmt.Sprintf("%d.%d ", id, n), expected: last}
				in.kind = []string{"get", "get", "get", "put", "put", "cas", "cas", "append", "delete"}[r.IntN(9)]
				h.record(id, in, func() (registerResult, error) {
					out, err := runRegisterOp(ctx, c.Table("registers"), in)
					if in.kind == "get" {
						last = out.value
					}
					return out, err
				})
			}
		})
	}
	for r := rand.New(rand.NewPCG(seed, 999)); time.Now().Before(end); era.Add(1) {
		time.Sleep(time.Duration(300+r.IntN(900)) * time.Millisecond)
		p.kill()
		p.start(os.Stderr)
	}
	clients.Wait()
	result, info := porcupine.CheckOperationsVerbose(registerModel, h.ops, 2*time.Minute)
	t.Logf("%d operations, %d kills: %v", len(h.ops), era.Load(), result)
	if result != porcupine.Ok {
		path := t.ArtifactDir() + "/history.html"
		if err := porcupine.VisualizePath(registerModel, info, path); err == nil {
			t.Logf("history: %s", path)
		}
		t.Fatalf("history is not linearizable: %v", result)
	}
	if len(h.ops) < 1000 {
		t.Fatalf("only %d operations: the test shows little", len(h.ops))
	}
}
