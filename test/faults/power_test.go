package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A disk that can lose power is ext4 on a loop device. Unsynced writes of its processes are only in
// the kernel's cache, which ext4 drops when it is shut down as by a power cut. The next mount finds
// what a restarted machine would. Only root may use loop devices.

const (
	// ext4Shutdown is EXT4_IOC_SHUTDOWN; with ext4NoFlush it writes nothing more, not even its
	// journal.
	ext4Shutdown, ext4NoFlush = 0x8004587d, 2
	// diskOwn is the size that the file system itself needs.
	diskOwn = 16 << 20
	// diskOptions avoid unrequested writes as far as ext4 permits.
	diskOptions = "loop,commit=300,noauto_da_alloc,nodiscard"
)

// canLosePower returns why no disk of this machine can lose power, or nil.
var canLosePower = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "stele-faults-power-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &disk{path: filepath.Join(dir, "disk"), image: filepath.Join(dir, "image")}
	if err := d.format(diskOwn); err != nil {
		return err
	}
	if err := d.losePower(); err != nil {
		return err
	}
	return d.unplug()
})

// addPoweredDisk is addDisk of a disk that can lose power, if available.
func (n *node) addPoweredDisk(name string, bytes int64) *disk {
	t := n.c.t
	t.Helper()
	if canLosePower() != nil {
		return n.addDisk(name, bytes)
	}
	d := &disk{path: filepath.Join(n.c.dir, n.String(), name)}
	images := d.path + ".image"
	n.c.inMemory(images, bytes+2*diskOwn)
	d.image = filepath.Join(images, "disk")
	if err := d.format(bytes + diskOwn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.path, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.path, err)
		}
	})
	n.disks = append(n.disks, d)
	return d
}

// format creates the file system and mounts it.
func (d *disk) format(bytes int64) error {
	f, err := os.Create(d.image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(bytes), f.Close(), os.MkdirAll(d.path, 0o700)); err != nil {
		return err
	}
	mkfs := exec.Command("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-N", "8192", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", d.image)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("create a disk that can lose power: %w: %s", err, out)
	}
	return d.plug()
}

func (d *disk) plug() error {
	if out, err := exec.Command("mount", "-n", "-t", "ext4", "-o", diskOptions, d.image, d.path).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", d.image, err, out)
	}
	return nil
}

func (d *disk) unplug() error {
	return await(10*time.Second, func() error { return unix.Unmount(d.path, 0) })
}

// cut drops unsynced data. From then on all calls fail.
func (d *disk) cut() error {
	if d.image == "" {
		return nil
	}
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, ext4NoFlush); err != nil {
		return fmt.Errorf("cut the power of %s: %w", d.path, err)
	}
	return nil
}

// losePower drops the disk's unsynced data. The disk must not be in use.
func (d *disk) losePower() error {
	if d.image == "" {
		return nil
	}
	if err := d.cut(); err != nil {
		return err
	}
	if err := d.unplug(); err != nil {
		return err
	}
	return d.plug()
}

// losePower ends processes as a power cut does: none sees its disks fail, and unsynced data is
// lost.
func (c *cluster) losePower(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		if n.shouldRun {
			if err := n.proc.Pause(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for _, n := range nodes {
		for _, d := range n.disks {
			if err := d.cut(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for _, n := range nodes {
		n.kill()
		for _, d := range n.disks {
			if d.image == "" {
				continue
			}
			if err := errors.Join(d.unplug(), d.plug()); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// TestPowerCut shows that a disk keeps what was synced before a power cut, and loses the rest.
func TestPowerCut(t *testing.T) {
	if err := canLosePower(); err != nil {
		if os.Getuid() == 0 {
			t.Logf("as root: %v", err)
		}
		t.Logf("no disk can lose power here, power cuts are kills: requires root, loop devices and mkfs.ext4")
		return
	}
	d := newCluster(t, 1).nodes[0].addPoweredDisk("disk", 1<<20)
	name := filepath.Join(d.path, "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 20 {
		text := strconv.Itoa(i)
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if i < 10 {
			want += text
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(f.Close(), os.WriteFile(name+".2", []byte("lost"), 0o600), d.losePower()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != want {
		t.Errorf("after a power cut: got %q (%v), synced %q", b, err, want)
	}
	if b, err := os.ReadFile(name + ".2"); err == nil {
		t.Errorf("after a power cut: got %q, which was not synced", b)
	}
}
