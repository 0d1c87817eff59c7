package clustertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// Reserve is the reserve, in bytes, of folders in tests of full disks.
const Reserve = 4 << 20

// WholeWithin is how long after the start of the last node an extent may lack a replica: a node is
// probed after a quarter of its silence, and failed tasks are retried as soon as it answers.
const WholeWithin = 5 * time.Second

// Flip changes the byte of a file at off.
func Flip(t *testing.T, f vfs.File, off int64) {
	t.Helper()
	var b [1]byte
	_, err := f.ReadAt(b[:], off)
	NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], off)
	NoError(t, err)
}

// CorruptReplica flips a byte in a node's replica.
func (n *Node) CorruptReplica(t *testing.T, x blobfs.ExtentID, off int64) {
	t.Helper()
	for _, dir := range []string{"/a/blobs", "/b/blobs"} {
		names, err := n.FS.ReadDir(dir)
		NoError(t, err)
		for _, name := range names {
			if name != x.String() && !strings.HasPrefix(name, x.String()+"of") {
				continue
			}
			f, err := n.FS.Open(filepath.Join(dir, name))
			NoError(t, err)
			defer f.Close()
			Flip(t, f, 4096+off)
			return
		}
	}
	t.Fatalf("%s has no %s", n.ID, x)
}

// Full leaves a node no space for another extent, or frees that space again.
func (n *Node) Full(full bool) {
	for _, f := range []string{"/a", "/b"} {
		if full {
			n.FS.SetCapacity(f, 1)
		} else {
			n.FS.SetCapacity(f, 1<<30)
		}
	}
}

// Files returns the number of extent files in the cluster.
func (c *Cluster) Files() (n int) {
	for _, node := range c.All {
		for _, dir := range []string{"/a/blobs", "/b/blobs"} {
			names, _ := node.FS.ReadDir(dir)
			n += len(names)
		}
	}
	return n
}

// Victim returns a node that has a stream of the extent being written, at the given place of its
// chain. If it finds none, it returns any node.
func (c *Cluster) Victim(writer *Node, place int) *Node {
	var open []*Node
	deadline := time.Now().Add(time.Second)
	for ; len(open) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		open = nil
		for _, n := range c.All {
			if n != writer && n.HasTemporary() {
				open = append(open, n)
			}
		}
	}
	if len(open) == 0 {
		return c.All[1]
	}
	return open[(place-1)%len(open)]
}

// HasTemporary reports whether a node has a file that is being written.
func (n *Node) HasTemporary() bool {
	for _, dir := range []string{"/a/blobs", "/b/blobs"} {
		names, _ := n.FS.ReadDir(dir)
		if slices.ContainsFunc(names, func(s string) bool { return strings.HasSuffix(s, ".tmp") }) {
			return true
		}
	}
	return false
}

// AliveHolders returns the lowest number of replicas that an extent had when it was sealed. It
// checks those on live nodes.
func (c *Cluster) AliveHolders(h blobfs.Handle) int {
	least := len(c.All)
	for _, ref := range h.Extents {
		alive := 0
		for _, id := range ref.Replicas {
			n := c.Get(id)
			if n.Dead {
				alive++ // it was alive when the extent was sealed
				continue
			}
			st, err := n.StatExtent(c.T.Context(), blobfs.ExtentID{Blob: h.ID, Index: ref.Index})
			if err != nil || st.CRC != ref.CRC {
				c.T.Errorf("extent %d on %s: %+v, %v", ref.Index, id, st, err)
			}
			alive++
		}
		least = min(least, alive)
	}
	return least
}

// Eventually waits until ok returns true.
func (c *Cluster) Eventually(what string, ok func() bool) {
	c.T.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.T.Fatalf("not in time: %s", what)
		}
	}
}

// SetFull leaves a node's folders less than an extent above their reserve, or much space.
func (c *Cluster) SetFull(n *Node, full bool) {
	space := int64(1 << 30)
	if full {
		space = 100 << 10
	}
	for _, dir := range []string{"/a", "/b"} {
		n.FS.SetCapacity(dir, 0)
		used := int64(0)
		for _, f := range n.Stats().Folders {
			if f.Path == dir {
				used = f.BlobBytes + f.LogBytes
			}
		}
		n.FS.SetCapacity(dir, used+Reserve+space)
	}
	c.Change(n.ID, func(m *blobfs.Member) {
		if m.FreeBytes = 1 << 40; full {
			m.FreeBytes = 0
		}
	})
}

// SetFree sets the free space above a node's reserve, which may be negative, and updates the
// membership.
func (c *Cluster) SetFree(n *Node, above int64) {
	for _, dir := range []string{"/a", "/b"} {
		n.FS.SetCapacity(dir, 0)
		for _, f := range n.Stats().Folders {
			if f.Path == dir {
				n.FS.SetCapacity(dir, f.BlobBytes+f.LogBytes+Reserve+above)
			}
		}
	}
	c.Change(n.ID, func(m *blobfs.Member) { m.FreeBytes = max(0, above) })
}

// lacking describes the extents that are missing on some of three nodes; empty if there is none.
func (c *Cluster) lacking(handles []blobfs.Handle) string {
	count, example := 0, ""
	for _, h := range handles {
		for _, ref := range h.Extents {
			var have []string
			for _, n := range c.All {
				if n.Dead {
					continue
				}
				if st, err := n.StatExtent(c.T.Context(), blobfs.ExtentID{Blob: h.ID, Index: ref.Index}); err == nil && st.CRC == ref.CRC {
					have = append(have, n.ID)
				}
			}
			if len(have) < 3 {
				count++
				example = fmt.Sprintf("extent %d of %s, written to %v, is on %v", ref.Index, h.ID, ref.Replicas, have)
			}
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%d extents lack replicas: %s", count, example)
}

// UntilWhole waits until all extents have three replicas.
func (c *Cluster) UntilWhole(handles []blobfs.Handle) {
	c.T.Helper()
	start := time.Now()
	for {
		lacking := c.lacking(handles)
		if lacking == "" {
			c.T.Logf("whole after %v", time.Since(start))
			return
		}
		if time.Since(start) > WholeWithin {
			c.T.Fatalf("%v after all nodes have started %s", time.Since(start), lacking)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// DamageLog kills a node and corrupts a replica such that each extent keeps a good replica. It
// returns the live nodes.
func (c *Cluster) DamageLog(t *testing.T, id blobfs.ID, extents []logproto.Extent, rng *rand.Rand) []*Node {
	t.Helper()
	// sealed are the nodes that an extent can be read from, except one.
	sealed := func(x *logproto.Extent, but *Node) (on []*Node) {
		for _, name := range x.Replicas {
			n := c.Get(name)
			if info, err := n.StatLogReplica(id, x.Seq); err == nil && info.Sealed && n != but {
				on = append(on, n)
			}
		}
		return on
	}
	lost := c.All[1+rng.IntN(3)]
	if slices.ContainsFunc(extents, func(x logproto.Extent) bool { return x.Length > 0 && len(sealed(&x, lost)) == 0 }) {
		lost = nil
	}
	x := &extents[rng.IntN(len(extents))]
	if on := sealed(x, lost); len(on) > 1 && x.Length > 0 {
		on[0].CorruptLog(t, id, x.Seq, rng.Int64N(x.Length))
	}
	if lost != nil {
		lost.Kill()
	}
	return slices.DeleteFunc(slices.Clone(c.All), func(n *Node) bool { return n == lost })
}

// CorruptLog flips a byte in a node's replica of a log extent.
func (n *Node) CorruptLog(t *testing.T, id blobfs.ID, seq uint64, off int64) {
	t.Helper()
	for _, dir := range []string{"/a/logs", "/b/logs"} {
		names, err := n.FS.ReadDir(dir)
		NoError(t, err)
		for _, name := range names {
			f, err := n.FS.Open(filepath.Join(dir, name))
			NoError(t, err)
			defer f.Close()
			var head [4096]byte
			if _, err = f.ReadAt(head[:], 0); err != nil || !bytes.Equal(head[32:48], id[:]) || binary.LittleEndian.Uint64(head[48:]) != seq {
				continue
			}
			Flip(t, f, 4096+off)
			return
		}
	}
	t.Fatalf("%s has no extent %d of log %s", n.ID, seq, id)
}
