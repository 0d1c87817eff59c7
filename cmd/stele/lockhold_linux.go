package main

import "syscall"

// heldAttributes makes the command die with its holder, whatever ends that; and if
// group is true, be a group of its own, so that it can be stopped with all that it has
// started. On a terminal it stays in the group that may read from there.
func heldAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
