package netlab

import (
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process runs on a host.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done

	// mu keeps signals from a process group that has been waited for.
	mu     sync.Mutex
	waited bool
}

// Start starts a command on the host, as a process group of its own. It ends with
// the lab at the latest.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second // for those who inherited its output
	}
	if err := h.Do(cmd.Start); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	h.lab.mu.Lock()
	h.lab.processes = append(h.lab.processes, p)
	h.lab.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.waited = true
		p.mu.Unlock()
		p.err = err
		close(p.done)
	}()
	return p, nil
}

// Pid returns the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended. Err is what exec's Wait says of it.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, once it has.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process and all that it has started. One that has
// ended gets none.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited {
		return nil
	}
	if err := syscall.Kill(-p.Pid(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Kill ends the process as SIGKILL does, also one that is paused, and returns when
// it has ended.
func (p *Process) Kill() {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		panic("BUG: cannot kill a process of ours: " + err.Error())
	}
	<-p.done
}

// Pause stops the process where it is (SIGSTOP): its connections stay open, and the
// kernel still acknowledges what it is sent. It returns when no thread runs.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.Pid(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD): // it has ended
			return nil
		}
		return err
	}
}

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
