package disks

import (
	"fmt"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
)

// Reserve returns the free disk space that each data directory must keep, in bytes.
func (s *Service) Reserve() int64 {
	if s.ReserveBytes != 0 {
		return s.ReserveBytes
	}
	const most = 1 << 30
	disk, err := vfs.DiskOf(s.FS, s.Dirs[0])
	if err != nil {
		return most
	}
	return min(most, disk.TotalBytes/20)
}

// Space returns the size of the data directories' disks, and the free space for data, in bytes. Retired directories do not count.
func (s *Service) Space() (total, free int64) {
	retired := s.Retired()
	seen := map[any]bool{}
	for _, dir := range s.Dirs {
		disk, err := vfs.DiskOf(s.FS, dir)
		if err != nil || retired[identity.BlobFolder(dir)] != nil || seen[disk.ID] {
			continue
		}
		seen[disk.ID] = true
		total += disk.TotalBytes
		free += max(0, disk.FreeBytes-s.Reserve())
	}
	return total, free
}

// CheckVoteSpace returns an error if the disk for the lock service's log has less free space than the reserve. The log grows there, and a
// node that cannot write it ends.
func (s *Service) CheckVoteSpace() error {
	dir := s.Dirs[0]
	if left, err := s.FS.FreeBytes(dir); err == nil && left < s.Reserve() {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("%s has %d bytes free, less than its reserve of %d: too little for the lock service's log", dir, left, s.Reserve())}
	}
	return nil
}
