package raftmeta

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
)

// childDirEnv is set in the environment of a test binary that writes to that directory until it is
// killed.
const childDirEnv = "STELE_RAFTMETA_CHILD"

// writeUntilKilled writes files as fast as it can from several goroutines, and prints each
// acknowledgement before it makes the next change. It takes snapshots often, so that kills also hit
// snapshots and deletions of old entries.
func writeUntilKilled(dir string) {
	g, err := Open(Config{Dir: dir, ID: "n1", SnapshotBytes: 64 << 10})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	ctx := context.Background()
	if err := g.WaitReady(ctx); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for w := range 16 {
		go func() {
			path := fmt.Sprintf("/w/%d", w)
			gen := uint64(0)
			if f, err := g.Get(ctx, path); err == nil {
				gen = f.Generation
			}
			for i := 0; ; i++ {
				data := fmt.Sprintf("%d after %d %s", i, gen, strings.Repeat("x", 300))
				made, err := g.Set(ctx, path, []byte(data), gen)
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				// One write call a line: the lines of goroutines do not mix.
				_, _ = os.Stdout.WriteString(fmt.Sprintf("ack %d %d %d %d\n", w, i, gen, made))
				gen = made
			}
		}()
	}
	select {}
}

// TestKill repeatedly kills a process that is writing. After each kill every acknowledged Set must
// be present, and no file may have a state that was never written.
func TestKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 1))
	dir := t.TempDir()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	total := 0
	last := map[int]uint64{} // worker → generation acknowledged last
	for round := range rounds {
		acks := killChild(t, dir, time.Duration(20+rng.IntN(150))*time.Millisecond)
		total += len(acks)
		verifyFolder(t, dir)
		made := map[int]string{}
		for _, a := range acks {
			var w, i int
			var before, after uint64
			if _, err := fmt.Sscanf(a, "ack %d %d %d %d", &w, &i, &before, &after); err != nil {
				t.Fatalf("child said %q", a)
			}
			// The child began where the previous round ended, or one unacknowledged Set later.
			if before < last[w] {
				t.Fatalf("round %d: writer %d went back from generation %d to %d", round, w, last[w], before)
			}
			last[w] = after
			made[w] = fmt.Sprintf("%d after %d ", i, before)
		}
		checkAfterKill(t, dir, last, made)
	}
	t.Logf("%d acknowledged sets over %d kills", total, rounds)
	if total < rounds*5 {
		t.Error("too few to tell")
	}
}

// killChild runs the child for a time after its first output, kills it, and returns the complete
// lines of its output.
func killChild(t *testing.T, dir string, after time.Duration) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	var acks []string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if err != io.EOF && !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
			break
		}
		if strings.HasPrefix(line, "error") {
			t.Error(line)
		}
		if len(acks) == 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		acks = append(acks, line)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	return acks
}

// checkAfterKill opens the directory and compares each file with the last acknowledged Set.
func checkAfterKill(t *testing.T, dir string, last map[int]uint64, made map[int]string) {
	t.Helper()
	g, err := Open(Config{Dir: dir, ID: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := g.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for w, gen := range last {
		f, err := g.Get(t.Context(), fmt.Sprintf("/w/%d", w))
		if err != nil {
			t.Fatalf("writer %d: %v", w, err)
		}
		var i int
		var before uint64
		if _, err := fmt.Sscanf(string(f.Data), "%d after %d ", &i, &before); err != nil {
			t.Fatalf("writer %d: file holds %q", w, f.Data)
		}
		switch {
		case f.Generation == gen:
			if m := made[w]; m != "" && !strings.HasPrefix(string(f.Data), m) {
				t.Errorf("writer %d: %q, want %q", w, f.Data, m)
			}
		case before == gen && f.Generation > gen:
			// The Set in flight at the kill: it committed without an acknowledgement.
			last[w] = f.Generation
		default:
			t.Errorf("writer %d: acknowledged generation %d, found %d made from %d", w, gen, f.Generation, before)
		}
	}
}
