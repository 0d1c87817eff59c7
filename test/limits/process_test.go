package limits

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testport"
	_ "github.com/steledb/stele/node" // "go test" is to run this anew when the program is another
)

const (
	memory     = 256 << 20
	programDir = "../../cmd/stele"
)

// process is a node with little memory.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	log  bytes.Buffer
	c    *client.Client
}

func build(t *testing.T) (program string) {
	files, err := filepath.Glob(filepath.Join(programDir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of the program: %v", err)
	}
	for _, f := range files { // as with the import of node
		if _, err := os.Stat(f); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(t.TempDir(), "stele")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, programDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func start(t *testing.T, program string) *process {
	addr, err := testport.New()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, addr: addr}
	p.cmd = exec.Command(program, "serve", "--dev", "--config", os.DevNull, "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--listen", addr, "--http", "off", "--gossip", "off", "--memory", strconv.Itoa(memory), "--extent-size", "4MiB", "--reserve", "64MiB")
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("the end of its log:\n%s", p.log.Bytes()[max(0, p.log.Len()-8<<10):])
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if p.c, err = client.Open(t.Context(), addr, client.Config{}); err == nil {
			var s *client.Status
			if s, err = p.c.Status(t.Context()); err == nil && s.Ready {
				break
			}
			p.c.Close()
		}
		if time.Now().After(end) {
			t.Fatalf("the node does not serve: %v", err)
		}
	}
	t.Cleanup(func() { p.c.Close() })
	return p
}

// peak returns the most memory that the process had since the last call, in bytes: all that is resident of it, its program
// and what the kernel has of files for it included.
func (p *process) peak() int64 {
	p.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	f, err := os.Open(proc + "status")
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		kb, found := strings.CutPrefix(s.Text(), "VmHWM:")
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(proc+"clear_refs", []byte("5"), 0o600); err != nil {
			p.t.Fatal(err)
		}
		return n << 10
	}
	p.t.Fatal("the kernel does not tell the peak: the node is gone")
	return 0
}
