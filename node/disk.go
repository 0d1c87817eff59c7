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

// diskSpace returns the size of the file system that dir is on, and what is free of
// it, in bytes.
func diskSpace(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}
