//go:build !linux

package main

import "syscall"

// heldAttributes makes the command, if group is true, a group of its own, so that it
// can be stopped with all that it has started.
func heldAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group}
}
