package node

import "golang.org/x/sys/unix"

// reserve returns the disk space that each data folder keeps free, in bytes.
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

// totalBytes returns the size of the file system that a folder is on, as far as that answers.
func totalBytes(folder string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return 0, false
	}
	return int64(st.Blocks) * st.Bsize, true
}

// freeBytes returns what is free of the file system that a folder is on, as far as that answers.
func freeBytes(folder string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(folder, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// diskSpace returns the size of the file systems that the data folders are on, and what
// is free of it for data, in bytes. A folder that was retired has neither.
func (n *Node) diskSpace() (total, free int64) {
	retired := n.retiredFolders()
	seen := map[unix.Fsid]bool{}
	for _, dir := range n.cfg.DataDirs {
		var st unix.Statfs_t
		if retired[blobFolder(dir)] || unix.Statfs(dir, &st) != nil || seen[st.Fsid] {
			continue
		}
		seen[st.Fsid] = true
		total += int64(st.Blocks) * st.Bsize
		free += max(0, int64(st.Bavail)*st.Bsize-n.reserve())
	}
	return total, free
}
