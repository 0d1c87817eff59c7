//go:build !linux

package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

func fdatasync(fd int) error { return unix.Fsync(fd) }

func startSync(int, int64, int64) error { return errors.ErrUnsupported }

func soleHandle(int) bool { return false }

func fallocate(int, int64) error { return errors.ErrUnsupported }
