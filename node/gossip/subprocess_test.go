package gossip_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/steledb/stele/node/gossip"
)

// A member in a process of its own, so that its memory can be measured and its crash detected.

const subprocessEnv = "STELE_GOSSIP_SUBPROCESS"

func TestMain(m *testing.M) {
	if bound, err := strconv.ParseInt(os.Getenv(subprocessEnv), 10, 64); err == nil {
		runSubprocess(bound)
		return
	}
	os.Exit(m.Run())
}

// condition is the state that a member in a subprocess reports.
type condition struct {
	// Taken is the memory that Go took from the system, including what it returned. Peak is the
	// largest resident size of the process as counted by the kernel, including the program and the
	// race detector. Neither misses a peak, and neither is less than what was used.
	Taken, Peak int64
	Goroutines  int
	Streams     int
	Stats       gossip.Stats
	Log         string
}

// runSubprocess is the process: a member that may use a given amount of memory beyond that at its
// start. The collector runs for no other reason, so that all free memory is used first. It answers
// each input line with its condition.
func runSubprocess(bound int64) {
	log := &lines{}
	c := config("apart", log)
	if os.Getenv("STELE_GOSSIP_OPEN") != "" {
		c.Keys = nil
	}
	r, err := gossip.Start(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	debug.FreeOSMemory()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(taken() + bound)
	fmt.Println(r.Address())
	answers := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_ = answers.Encode(condition{taken(), peak(), runtime.NumGoroutine(), r.Streams(), r.Stats(), log.String()})
	}
	r.Close()
}

func taken() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

// peak returns VmHWM of /proc/self/status, in bytes.
func peak() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(string(b), "VmHWM:")
	n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return n << 10
}

// more returns how much more memory a member took than before.
func (c condition) more(before condition) int64 {
	return min(c.Taken-before.Taken, c.Peak-before.Peak)
}

// subprocess is a test's handle of such a member.
type subprocess struct {
	address string
	ask     io.Writer
	answers *json.Decoder
}

func startSubprocess(t *testing.T, open bool, bound int64) *subprocess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", subprocessEnv, bound))
	if open {
		cmd.Env = append(cmd.Env, "STELE_GOSSIP_OPEN=1")
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the subprocess member: %v", err)
		}
	})
	read := bufio.NewReader(out)
	address, err := read.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &subprocess{address: address[:len(address)-1], ask: in, answers: json.NewDecoder(read)}
}

// condition returns the member's state.
func (a *subprocess) condition(t *testing.T) (c condition) {
	t.Helper()
	if _, err := fmt.Fprintln(a.ask); err != nil {
		t.Fatal(err)
	}
	if err := a.answers.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}
