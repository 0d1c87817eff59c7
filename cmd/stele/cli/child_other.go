//go:build !linux

package cli

import "syscall"

// ChildAttributes gives the command its own process group if group is true, so that it can be stopped
// with its children.
func ChildAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group}
}
