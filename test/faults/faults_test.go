package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/internal/netlab"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

const (
	// recoverTime bounds the time from a fault's end to the next answer. All nodes may have to
	// start, on a machine that is busy with other tests.
	recoverTime = 45 * time.Second
	// faultsShort, faultsLong and faultsSoak are the numbers of faults of one run.
	faultsShort, faultsLong, faultsSoak = 3, 20, 25
)

// faultRun is one run of a cluster under faults.
type faultRun struct {
	*cluster
	seed    uint64
	faults  int             // done
	lib     *session.Client // in the test's own network, which has no faults
	judge   *judge
	clients []*clientProcess
	slowest time.Duration // to recover
	h       *histories    // once the clients have ended
}

// clientProcess is a client, or successive ones, on the host of a node.
type clientProcess struct {
	host      *netlab.Host
	number    int // of the last one started here
	proc      *netlab.Process
	stdin     io.WriteCloser
	histories []string
}

// TestFaults runs five nodes through random faults (FL1 to FL7).
func TestFaults(t *testing.T) {
	seed := testseed.New(t)
	faults, longest := faultsLong, lengthMax
	runs := soakRuns()
	switch {
	case runs > 1:
		faults, longest = faultsSoak, lengthMaxSoak
	case testing.Short():
		faults = faultsShort
	}
	if runs == 1 {
		t.Parallel() // mostly waiting
	}
	until := soakShare(5)
	for i := 0; i < runs && time.Now().Before(until); i++ {
		if runs == 1 {
			runFaults(t, seed, faults, longest, until)
			break
		}
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("this run alone: STELE_SOAK=2 STELE_SEED=%d go test ./test/faults -count=1 -timeout 0 -v -run '^TestFaults$/^0$'", seed+uint64(i))
			runFaults(t, seed+uint64(i), faults, longest, until)
		})
		if !ok {
			break
		}
	}
}

func runFaults(t *testing.T, seed uint64, faults int, longest time.Duration, until time.Time) {
	r := &faultRun{cluster: formed(t, 5), seed: seed}
	r.lib = r.service()
	r.judge = startJudge(t, r.lab.Here, judgePort)
	for _, n := range r.nodes {
		p := &clientProcess{host: n.host}
		r.clients = append(r.clients, p)
		r.startClient(p)
	}
	start := time.Now()
	for i, f := range plan(rand.New(rand.NewPCG(seed, 1)), slices.Collect(maps.Keys(kinds)), faults, len(r.nodes), longest) {
		if time.Now().After(until) {
			break
		}
		r.faults++
		t.Logf("%6.1f s: fault %d: %s for %v", time.Since(start).Seconds(), i+1, f.kind, f.length)
		kinds[f.kind].do(r, f)
		if f.kind != "flap" && f.kind != "stutter leader" {
			time.Sleep(f.length)
		}
		kinds[f.kind].undo(r, f)
		r.recovers()
		time.Sleep(f.rest)
	}
	t.Logf("%d faults in %v; slowest recovery %v", r.faults, time.Since(start).Round(time.Second), r.slowest.Round(time.Millisecond))
	r.converges()
	r.judgeAll()
}

// startClient starts a client.
func (r *faultRun) startClient(p *clientProcess) {
	r.t.Helper()
	p.number++
	number := slices.Index(r.clients, p) + len(r.clients)*p.number
	cfg := clientConfig{
		Number: number, Seed: r.seed, Servers: r.addresses(), Credential: r.keys.nodeFile, Judge: r.lab.Here.Port(judgePort),
		History: filepath.Join(r.dir, fmt.Sprintf("client-%d.jsonl", number)),
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(cfg.History, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("client-%d.log", number)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=client", configEnv+"="+string(b))
	cmd.Stdout, cmd.Stderr = out, out
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if p.proc, err = p.host.Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	p.histories = append(p.histories, cfg.History)
}

// recovers waits for an answer after a fault (FL6).
func (r *faultRun) recovers() {
	r.t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.t.Context(), recoverTime)
	defer cancel()
	_, err := r.lib.Set(ctx, "/faults/probe", []byte("?"), api.AnyGeneration, api.SetOptions{})
	for errors.Is(err, api.ErrOutcomeUnknown) && ctx.Err() == nil {
		_, err = r.lib.Set(ctx, "/faults/probe", []byte("?"), api.AnyGeneration, api.SetOptions{})
	}
	if err != nil {
		r.t.Errorf("no answer %v after the fault's end: %v", recoverTime, err)
		for _, n := range r.nodes {
			s, err := n.raft()
			r.t.Logf("%v: %+v %v", n, s, err)
		}
		r.t.FailNow()
	}
	if err := r.ended(); err != nil {
		r.t.Fatal(err)
	}
	took := time.Since(start)
	r.slowest = max(r.slowest, took)
	if took > 3*time.Second {
		r.t.Logf("          recovered after %v", took.Round(10*time.Millisecond))
	}
}

// converges ends the clients and checks the remaining state (FL7).
func (r *faultRun) converges() {
	r.t.Helper()
	for _, p := range r.clients {
		if err := p.stdin.Close(); err != nil {
			r.t.Errorf("client: %v", err)
		}
	}
	r.settled(60*time.Second, len(r.nodes))
	for _, p := range r.clients {
		select {
		case <-p.proc.Done():
			if err := p.proc.Err(); err != nil {
				r.t.Errorf("client %s: %v", filepath.Base(p.histories[len(p.histories)-1]), err)
			}
		case <-time.After(60 * time.Second):
			r.t.Errorf("client %s does not end", filepath.Base(p.histories[len(p.histories)-1]))
		}
	}
	// Sessions of killed clients end with their leases, their locks after the lock-delays.
	err := await(30*time.Second, r.orphans)
	if err != nil {
		r.t.Error(err)
	}
	r.agree(r.lib, filesDir, 30*time.Second)
	r.lastReads()
	r.stopAll()
}

// lastReads reads the histories, and then each register that was ever used, so that an acknowledged
// write that was lost violates FL1.
func (r *faultRun) lastReads() {
	r.t.Helper()
	var paths []string
	for _, p := range r.clients {
		paths = append(paths, p.histories...)
	}
	r.h = readHistories(r.t, paths)
	ctx, cancel := context.WithTimeout(r.t.Context(), 60*time.Second)
	defer cancel()
	read := map[string]bool{}
	for _, op := range r.h.ops {
		path := op.Input.(call).Path
		if read[path] {
			continue
		}
		read[path] = true
		c := entry{At: now(), Call: &call{Kind: "get", Path: path}}
		f, err := r.lib.Get(ctx, path)
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			r.t.Fatalf("read %s in the end: %v", path, err)
		}
		r.h.add(len(paths), c, answer{Gen: f.Generation, Value: string(f.Data)}, now())
	}
}

// orphans returns an error while a lock or ephemeral file of a client exists.
func (r *faultRun) orphans() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	left, err := r.lib.List(ctx, ephemeralDir)
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d ephemeral files are left, such as %+v", len(left), left[0])
	}
	all, err := r.lib.List(ctx, locksDir)
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return err
	}
	for _, st := range all {
		if st.Lock != 0 {
			return fmt.Errorf("lock %s is left: %+v", st.Path, st)
		}
	}
	return nil
}

// judgeAll checks the findings of the clients and the judge.
func (r *faultRun) judgeAll() {
	r.t.Helper()
	h := r.h
	bad, accepts, refusals := r.judge.findings()
	for _, b := range slices.Concat(h.bad, bad, overlaps(h.holds)) {
		r.t.Error(b)
	}
	r.t.Logf("%+v; the judge accepted %d and refused %d", h.tally, accepts, refusals)
	if h.tally.Answers < 100*r.faults || h.tally.Holds < 5*r.faults || accepts < 5*r.faults {
		r.t.Errorf("too few operations to be conclusive: %+v", h.tally)
	}
	for _, part := range registers.Partition(h.ops) {
		r.judgeRegister(part)
	}
}

// judgeRegister fails the test unless the operations on a register are linearizable (FL1). Registers are checked apart: many writes of unknown
// outcome on one must not make the checker try them together with those on another.
func (r *faultRun) judgeRegister(part []porcupine.Operation) {
	r.t.Helper()
	if porcupine.CheckOperationsTimeout(registers, withoutUnseen(part), 30*time.Second) == porcupine.Ok {
		return // a write without effect may be ordered last
	}
	result, info := porcupine.CheckOperationsVerbose(registers, part, 2*time.Minute)
	if result == porcupine.Ok {
		return
	}
	name := part[0].Input.(call).Path
	path := filepath.Join(r.dir, "register-"+filepath.Base(name)+".html")
	if err := porcupine.VisualizePath(registers, info, path); err != nil {
		r.t.Log(err)
	}
	r.t.Errorf("%d operations on %s are not linearizable (%v): %s", len(part), name, result, path)
	if result == porcupine.Illegal { // otherwise its prefixes may take as long
		r.t.Logf("shortest failing prefix:\n%s", shortest(part))
	}
}
