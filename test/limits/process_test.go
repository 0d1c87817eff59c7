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
	"sync"
	"syscall"
	"testing"

	_ "github.com/steledb/stele/node" // rerun cached tests when the program changes
)

const (
	memory     = 256 << 20
	programDir = "../../cmd/stele"
)

func build(t *testing.T) (program string) {
	files, err := filepath.Glob(filepath.Join(programDir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("program sources not found: %v", err)
	}
	for _, f := range files { // for the test cache, like the import of node
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

// process is a node with little memory.
type process struct {
	t    *testing.T
	name string
	args []string // after the program
	addr string
	log  logTail

	cmd  *exec.Cmd
	most int64 // peak of its killed runs
}

// start starts or restarts the node.
func (p *process) start(program string) {
	p.cmd = exec.Command(program, p.args...)
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the node as a power failure of its host would.
func (p *process) kill() {
	p.most = p.peak()
	p.end()
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// logTail keeps the end of a log.
type logTail struct {
	mu sync.Mutex
	b  []byte
}

const logTailBytes = 8 << 10

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b = append(l.b, p...); len(l.b) > 2*logTailBytes {
		l.b = append([]byte(nil), l.b[len(l.b)-logTailBytes:]...)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.ToValidUTF8(l.b[max(0, len(l.b)-logTailBytes):], nil))
}

// peak returns the peak resident memory of the process since the last call, in bytes, including its
// program and mapped files.
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
		most := max(n<<10, p.most)
		p.most = 0
		return most
	}
	p.t.Fatalf("read peak memory: %s has exited", p.name)
	return 0
}
