package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is a small file system of a node in memory, with one data directory.
type disk struct {
	path string
	// image is the file of the file system, if it can lose power.
	image string
}

// addDisk adds a disk of the given size in bytes to a node that was never started.
func (n *node) addDisk(name string, bytes int64) *disk {
	n.c.t.Helper()
	d := &disk{path: filepath.Join(n.c.dir, n.String(), name)}
	n.c.inMemory(d.path, bytes)
	n.disks = append(n.disks, d)
	return d
}

// inMemory creates a directory of the given size in bytes that is removed with the test.
func (c *cluster) inMemory(path string, bytes int64) {
	c.t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		c.t.Fatalf("mount a disk in memory: %v", err)
	}
	c.t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			c.t.Errorf("unmount %s: %v", path, err)
		}
	})
}

func (d *disk) folder() string  { return filepath.Join(d.path, "data") }
func (d *disk) blobs() string   { return filepath.Join(d.folder(), "blobs") }
func (d *disk) ballast() string { return filepath.Join(d.path, "ballast") }

// fill fills the disk except for leave bytes.
func (d *disk) fill(leave int64) error {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := f.Seek(0, 2)
	for err == nil {
		var st unix.Statfs_t
		if err = unix.Fstatfs(int(f.Fd()), &st); err != nil {
			break
		}
		more := int64(st.Bavail)*st.Bsize - leave
		if more < st.Bsize {
			return nil
		}
		if err = unix.Fallocate(int(f.Fd()), 0, at, more); err == nil {
			at += more
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINTR) {
			err = nil // another process was faster
		}
	}
	return fmt.Errorf("fill disk %s: %w", d.path, err)
}

// empty frees the space that fill used.
func (d *disk) empty() error {
	if err := os.Remove(d.ballast()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lose removes the block store's data on the disk, as if the disk had been replaced.
func (d *disk) lose() error { return os.RemoveAll(d.blobs()) }

// files returns the names of the disk's blob extents and log files.
func (d *disk) files() (blobs, logs []string, err error) {
	for dir, suffix := range map[string]string{"blobs": "", "logs": ".log"} {
		entries, err := os.ReadDir(filepath.Join(d.blobs(), dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		for _, e := range entries {
			name := filepath.Join(d.blobs(), dir, e.Name())
			switch {
			case strings.HasSuffix(name, ".tmp") || !strings.HasSuffix(name, suffix):
			case dir == "logs":
				logs = append(logs, name)
			default:
				blobs = append(blobs, name)
			}
		}
	}
	return blobs, logs, nil
}

// flip inverts one bit of a byte in a file.
func flip(path string, at int64, bit int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 1 << bit
	_, err = f.WriteAt(b, at)
	return err
}
