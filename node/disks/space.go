package disks

import (
	"fmt"

	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"golang.org/x/sys/unix"
)

// Reserve returns the free disk space that each data directory must keep, in bytes.
func (s *Service) Reserve() int64 {
	if s.ReserveBytes != 0 {
		return s.ReserveBytes
	}
	const most = 1 << 30
	var st unix.Statfs_t
	if err := unix.Statfs(s.Dirs[0], &st); err != nil {
		return most
	}
	return min(most, int64(st.Blocks)*st.Bsize/20)
}

// TotalBytes returns the size of a directory's file system, if it can be read.
func TotalBytes(folder string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return 0, false
	}
	return int64(st.Blocks) * st.Bsize, true
}

// freeBytes returns the free space of a directory's file system, if it can be read.
func freeBytes(folder string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// Space returns the size of the data directories' file systems, and the free space for data, in bytes. Retired directories do not count.
func (s *Service) Space() (total, free int64) {
	retired := s.Retired()
	seen := map[unix.Fsid]bool{}
	for _, dir := range s.Dirs {
		var st unix.Statfs_t
		if retired[identity.BlobFolder(dir)] || unix.Statfs(dir, &st) != nil || seen[st.Fsid] {
			continue
		}
		seen[st.Fsid] = true
		total += int64(st.Blocks) * st.Bsize
		free += max(0, int64(st.Bavail)*st.Bsize-s.Reserve())
	}
	return total, free
}

// CheckVoteSpace returns an error if the disk for the lock service's log has less free space than the reserve. The log grows there, and a
// node that cannot write it ends.
func (s *Service) CheckVoteSpace() error {
	dir := s.Dirs[0]
	if left, ok := freeBytes(dir); ok && left < s.Reserve() {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("%s has %d bytes free, less than its reserve of %d: too little for the lock service's log", dir, left, s.Reserve())}
	}
	return nil
}
