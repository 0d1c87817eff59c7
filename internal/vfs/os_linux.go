package vfs

import "golang.org/x/sys/unix"

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

// startSync does not wait for the writes. Waiting here would consume their errors, which fdatasync
// must report.
func startSync(fd int, off, n int64) error {
	return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// soleHandle reports whether an open file has no name and no other open handle, so that nothing can
// read it any more.
func soleHandle(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 {
		return false
	}
	// A write lease is granted only if the file is not open elsewhere.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

func fallocate(fd int, n int64) error { return unix.Fallocate(fd, 0, 0, n) }
