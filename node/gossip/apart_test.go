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

// A member in a process of its own tells what memory that has taken, and dies alone.

const apartEnv = "STELE_GOSSIP_APART"

func TestMain(m *testing.M) {
	if bound, err := strconv.ParseInt(os.Getenv(apartEnv), 10, 64); err == nil {
		beApart(bound)
		return
	}
	os.Exit(m.Run())
}

// condition is what a member apart tells of itself.
type condition struct {
	// Taken is what Go has taken from the system, also what it has given back; Peak is the most of the process that was in memory
	// at a time, as the kernel counted it, the program and what the race detector needs included. Neither misses a peak, and
	// neither is less than what was used.
	Taken, Peak int64
	Goroutines  int
	Streams     int
	Stats       gossip.Stats
	Log         string
}

// beApart is that process: a member that may have so much more memory than it has at its start, whose collector runs for no
// other reason, so that all that is free is used before. It answers each line with its condition.
func beApart(bound int64) {
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

// more is how much more memory a member took than before.
func (c condition) more(before condition) int64 {
	return min(c.Taken-before.Taken, c.Peak-before.Peak)
}

// apart is how a test sees such a member.
type apart struct {
	address string
	ask     io.Writer
	answers *json.Decoder
}

func startApart(t *testing.T, open bool, bound int64) *apart {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", apartEnv, bound))
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
			t.Errorf("the member apart: %v", err)
		}
	})
	read := bufio.NewReader(out)
	address, err := read.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &apart{address: address[:len(address)-1], ask: in, answers: json.NewDecoder(read)}
}

// condition asks the member how it is.
func (a *apart) condition(t *testing.T) (c condition) {
	t.Helper()
	if _, err := fmt.Fprintln(a.ask); err != nil {
		t.Fatal(err)
	}
	if err := a.answers.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}
