package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

func fallocate(fd int, n int64) error { return unix.Fallocate(fd, 0, 0, n) }
