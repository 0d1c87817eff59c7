//go:build !linux

package main

import "syscall"

// childAttributes gives the command its own process group if group is true, so that it can be stopped
// with its children.
func childAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group}
}
