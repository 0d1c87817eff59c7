package rpc

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/invariant"
)

// TestBrokenInvariantEndsProcess: a handler in which an invariant is broken ends the process, as anywhere else. Other panics of handlers do
// not.
func TestBrokenInvariantEndsProcess(t *testing.T) {
	const child = "STELE_RPC_BROKEN"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestBrokenInvariantEndsProcess$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "BUG: entry 7 comes twice") {
			t.Errorf("the process ends with %v and the output %s", err, out)
		}
		return
	}
	s, err := NewServer(ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Call{conn: &serverConn{srv: s}, method: &method{name: "m", handler: func(*Call) {
		invariant.Check(false, "entry %d comes twice", 7)
	}}}
	c.run()
}
