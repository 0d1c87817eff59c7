package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

// startSync leaves errors of the disk to fdatasync: it does not take them from the file, as
// waiting for them here would.
func startSync(fd int, off, n int64) error {
	return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func fallocate(fd int, n int64) error { return unix.Fallocate(fd, 0, 0, n) }
