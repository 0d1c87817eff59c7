package node

import (
	"github.com/steledb/stele/node/identity"
	"golang.org/x/sys/unix"
)

// reserve returns the free disk space that each data directory must keep, in bytes.
func (n *Node) reserve() int64 {
	if n.cfg.ReserveBytes != 0 {
		return n.cfg.ReserveBytes
	}
	const most = 1 << 30
	var st unix.Statfs_t
	if err := unix.Statfs(n.cfg.DataDirs[0], &st); err != nil {
		return most
	}
	return min(most, int64(st.Blocks)*st.Bsize/20)
}

// totalBytes returns the size of a directory's file system, if it can be read.
func totalBytes(folder string) (int64, bool) {
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

// diskSpace returns the size of the data directories' file systems, and the free space for data, in bytes. Retired directories do not count.
func (n *Node) diskSpace() (total, free int64) {
	retired := n.retiredFolders()
	seen := map[unix.Fsid]bool{}
	for _, dir := range n.cfg.DataDirs {
		var st unix.Statfs_t
		if retired[identity.BlobFolder(dir)] || unix.Statfs(dir, &st) != nil || seen[st.Fsid] {
			continue
		}
		seen[st.Fsid] = true
		total += int64(st.Blocks) * st.Bsize
		free += max(0, int64(st.Bavail)*st.Bsize-n.reserve())
	}
	return total, free
}
