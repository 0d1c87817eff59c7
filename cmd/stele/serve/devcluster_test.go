package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// devRun is a process of "serve --dev --nodes", and its output.
type devRun struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.WriteCloser
	done  chan error

	mu     sync.Mutex
	output strings.Builder
}

func startDevCluster(t *testing.T, dir string) *devRun {
	t.Helper()
	// The command that TestMain makes is the first in the path.
	r := &devRun{t: t, done: make(chan error, 1), cmd: exec.Command("stele", "serve", "--dev", "--nodes", "3", "--data-dir", dir,
		"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--http", "off", "--bigtable", "127.0.0.1:0", "--memory", "256MiB", "--extent-size", "1MiB")}
	var err error
	if r.input, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			r.mu.Lock()
			r.output.WriteString(s.Text() + "\n")
			r.mu.Unlock()
		}
		r.done <- r.cmd.Wait()
	}()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// await waits until the output matches, and returns the submatches of all matches.
func (r *devRun) await(pattern string) [][]string {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		output := r.output.String()
		r.mu.Unlock()
		if m := re.FindAllStringSubmatch(output, -1); m != nil {
			return m
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("want %q in the output:\n%s", pattern, output)
		}
	}
}

// nodes returns the addresses and processes that the banner names.
func (r *devRun) nodes() (addrs []string, pids []int) {
	r.t.Helper()
	r.await("Ctrl-C stops all")
	for _, m := range r.await(`clients (\S+).*  process (\d+)`) {
		pid, err := strconv.Atoi(m[2])
		if err != nil {
			r.t.Fatal(err)
		}
		addrs, pids = append(addrs, m[1]), append(pids, pid)
	}
	if len(addrs) != 3 {
		r.t.Fatalf("the banner names %d nodes, want 3", len(addrs))
	}
	return addrs, pids
}

// gone fails the test unless the processes exit within 10 s.
func (r *devRun) awaitExit(pids []int) {
	r.t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				r.t.Fatalf("process %d still runs", pid)
			}
		}
	}
}

// rowsOf writes the row put, if it is not empty, and counts the rows of the sample table.
func rowsOf(t *testing.T, addrs []string, put string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Open(ctx, strings.Join(addrs, ","), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sample := c.Table(sampleTable)
	if put != "" {
		if err := sample.Apply(ctx, client.NewRowMutation(put).Set("language:", []byte("EN"))); err != nil {
			t.Fatal(err)
		}
	}
	rows, s := 0, sample.Scan(ctx)
	defer s.Close()
	for s.Next() {
		rows++
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestDevCluster kills and restarts a node of a development cluster, stops the cluster, restarts it
// with its data, and checks that it exits when its parent process is killed.
func TestDevCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := startDevCluster(t, dir)
	addrs, pids := r.nodes()
	r.await(`bigtable  export BIGTABLE_EMULATOR_HOST=127\.0\.0\.1:\d+`)
	if got := rowsOf(t, addrs, "com.example.www"); got != len(samplePages)+1 {
		t.Fatalf("%d rows, want %d", got, len(samplePages)+1)
	}
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await(`lost: n2 \(process \d+\) has exited: signal: killed`)
	if got := rowsOf(t, []string{addrs[0], addrs[2]}, ""); got != len(samplePages)+1 {
		t.Fatalf("%d rows after a node died, want %d", got, len(samplePages)+1)
	}
	fmt.Fprintln(r.input)
	again := r.await(`restarting n2 as process (\d+)`)
	pids[1], _ = strconv.Atoi(again[0][1])
	r.await("n2 is serving again")
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-r.done; err != nil {
		t.Fatalf("stop: %v\n%s", err, r.output.String())
	}
	r.awaitExit(pids)

	r = startDevCluster(t, dir)
	addrs, pids = r.nodes()
	if got := rowsOf(t, addrs, ""); got != len(samplePages)+1 {
		t.Fatalf("%d rows after a restart, want %d", got, len(samplePages)+1)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.awaitExit(pids) // on Linux, nodes are killed with their parent process
	if logs, _ := filepath.Glob(filepath.Join(dir, "n?.log")); len(logs) != 3 {
		t.Fatalf("%d logs of nodes, want 3", len(logs))
	}
}
