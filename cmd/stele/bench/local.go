package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// A localNode is a node that runs as a child process, with its data in a temporary folder.
type localNode struct {
	addr, http string
	dir        string
	process    *exec.Cmd
	ended      context.Context // cancelled with the cause when the process exits; nil if not started
}

// startWait is how long a node with empty folders may take to start or to stop.
const startWait = 30 * time.Second

// startLocalNode starts a node on free ports and waits until it serves.
func startLocalNode(ctx context.Context, a *cli.App, parent, memory string) (n *localNode, err error) {
	n = &localNode{}
	if n.dir, err = os.MkdirTemp(parent, "stele-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	warnMemoryFS(a, n.dir)
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	n.addr, n.http = ports[0], ports[2]
	args := []string{"serve", "--data-dir", filepath.Join(n.dir, "data"), "--listen", ports[0], "--gossip", ports[1], "--http", ports[2], "--bigtable", "off", "--profiles", "http", "--log-level", "warn"}
	if memory != "" {
		args = append(args, "--memory", memory)
	}
	n.process = exec.Command(program, args...)
	n.process.Stderr = a.Err
	// Ctrl-C must not reach the node before the tables are dropped, so it gets its own process group.
	// Pdeathsig kills it if this process dies.
	n.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.start(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	return n, n.waitReady(ctx)
}

// start starts the process, and a goroutine that waits for it.
func (n *localNode) start() error {
	ended, end := context.WithCancelCause(context.Background())
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread that started the process exits, not when this process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := n.process.Start()
		if err == nil {
			n.ended = ended
		}
		started <- err
		if err == nil {
			end(fmt.Errorf("the node exited: %w", errors.Join(n.process.Wait(), errNodeEnded)))
		}
	}()
	return <-started
}

var errNodeEnded = errors.New("see its log above")

func (n *localNode) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		c, err := client.Open(ctx, n.addr, client.Config{})
		if err == nil {
			status, failed := c.Status(ctx)
			c.Close()
			if failed == nil && status.Ready {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-n.ended.Done():
			return context.Cause(n.ended)
		case <-ctx.Done():
			return fmt.Errorf("start the node: not ready after %v: %w", startWait, ctx.Err())
		}
	}
}

// stop stops the node and removes its folder. A node that takes longer than startWait is killed.
func (n *localNode) stop() error {
	var err error
	if n.ended != nil {
		_ = n.process.Process.Signal(syscall.SIGTERM)
		select {
		case <-n.ended.Done():
		case <-time.After(startWait):
			_ = n.process.Process.Kill()
			<-n.ended.Done()
			err = fmt.Errorf("stop the node: killed after %v", startWait)
		}
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

// warnMemoryFS warns if a folder is on a memory file system, where writes cost no disk time.
func warnMemoryFS(a *cli.App, dir string) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC) {
		a.Notef("warning: %s is on a memory file system: writes are faster than on a disk; name another folder with --dir", dir)
	}
}

// freePorts returns n loopback addresses whose ports are free now.
func freePorts(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only after all are chosen, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
