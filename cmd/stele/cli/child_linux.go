package cli

import "syscall"

// ChildAttributes makes the kernel kill the command when the thread that started it exits. If group is
// true, the command gets its own process group, so that it can be stopped with its children. On a
// terminal it must stay in the foreground group, which may read input.
func ChildAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
