package netlab

import (
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a process on a host.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done

	// mu prevents signals to a process group that has been waited for.
	mu     sync.Mutex
	waited bool
}

// Start starts a command on the host in its own process group. The lab kills it at the end of the
// test.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second // for processes that inherited its output
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

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the process to end and returns the result of exec.Cmd.Wait.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process and all that it started. It does nothing if the process has
// ended.
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

// Kill kills the process (SIGKILL), even if it is paused, and waits until it has ended.
func (p *Process) Kill() {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		panic("BUG: cannot kill own process: " + err.Error())
	}
	<-p.done
}

// Pause stops the process (SIGSTOP). Its connections stay open, and the kernel still acknowledges
// data sent to it. Pause returns when no thread runs.
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

// Resume continues a paused process (SIGCONT).
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
