package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

// startSync leaves errors of the disk to fdatasync: it does not take them from the file, as
// waiting for them here would.
func startSync(fd int, off, n int64) error {
	return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// ours tells whether an open file has no name any more and is open nowhere else, so that nobody else will ever read it.
func ours(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 {
		return false
	}
	// A write lease is only granted to who alone has the file open.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

func fallocate(fd int, n int64) error { return unix.Fallocate(fd, 0, 0, n) }
