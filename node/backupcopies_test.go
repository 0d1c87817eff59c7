package node_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

// copied is a backup outside a cluster.
type copied struct {
	ids   []string // of the files, the manifest first
	bytes [][]byte
}

// copyOut reads a backup.
func (f *backupCluster) copyOut(id string) (out copied) {
	f.t.Helper()
	if err := f.c.Backups().Files(f.ctx, id, func(x *client.BackupFile) error {
		content := make([]byte, x.Bytes+1)
		at := int64(0)
		for {
			n, err := f.c.Backups().Read(f.ctx, id, x, content[at:], at)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			at += int64(n)
		}
		if at != x.Bytes {
			return fmt.Errorf("file %s has %d bytes, want %d", x.ID, at, x.Bytes)
		}
		out.ids, out.bytes = append(out.ids, x.ID), append(out.bytes, content[:at])
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// copyIn stages a backup, imports it and deletes the staged blobs.
func (f *backupCluster) copyIn(from copied) (id string, err error) {
	f.t.Helper()
	var pairs []byte
	var staged []string
	put := func(b []byte) string {
		info, err := f.c.Blobs().PutStaged(f.ctx, "backup", bytes.NewReader(b))
		if err != nil {
			f.t.Fatal(err)
		}
		staged = append(staged, info.ID)
		return info.ID
	}
	for i, old := range from.ids {
		pairs = append(pairs, good(hex.DecodeString(old))...)
		pairs = append(pairs, good(hex.DecodeString(put(from.bytes[i])))...)
	}
	put(pairs)
	id, err = f.c.Backups().Import(f.ctx, staged[0], staged[len(staged)-1])
	for _, x := range staged {
		if err := f.c.Blobs().Delete(f.ctx, x); err != nil {
			f.t.Fatal(err)
		}
	}
	return id, err
}

// TestBackupCopies (BU5): a backup that is copied into a cluster with another number of nodes restores to the same cells, also when the staged
// blobs are deleted and garbage is collected. Manifests that are damaged, and files that are missing or cut off, import nothing.
func TestBackupCopies(t *testing.T) {
	t.Parallel()
	f, g := newBackupCluster(t, 1), newBackupCluster(t, 3)
	f.create("t")
	f.fill("t", 1)
	f.fill("t", 2)
	want := f.rows("t")
	b := f.backup("t")
	f.fill("t", 3)
	out := f.copyOut(b.ID)
	if len(out.ids) < 2 {
		t.Fatalf("the backup has the files %v", out.ids)
	}
	for what, change := range map[string]func(c *copied){
		"a manifest that is cut off": func(c *copied) { c.bytes[0] = c.bytes[0][:len(c.bytes[0])-1] },
		"an empty manifest":          func(c *copied) { c.bytes[0] = nil },
		"a huge footer":              func(c *copied) { c.bytes[0] = append(bytes.Clone(c.bytes[0]), 0xff, 0xff, 0xff, 0xff) },
		"a missing file":             func(c *copied) { c.ids, c.bytes = c.ids[:1], c.bytes[:1] },
		"a file that is cut off":     func(c *copied) { c.bytes[1] = c.bytes[1][1:] },
	} {
		bad := copied{append([]string{}, out.ids...), append([][]byte{}, out.bytes...)}
		change(&bad)
		if id, err := g.copyIn(bad); err == nil {
			t.Errorf("%s is imported as %s", what, id)
		}
	}
	if list := good(g.c.Backups().List(g.ctx)); len(list) != 0 {
		t.Errorf("after imports that failed there are the backups %+v", list)
	}
	id, err := g.copyIn(out)
	if err != nil {
		t.Fatal(err)
	}
	g.rounds(4)
	g.fsck()
	if _, err := g.c.Backups().Restore(g.ctx, id, "t", "t"); err != nil {
		t.Fatal(err)
	}
	if err := g.c.Backups().Delete(g.ctx, id); err != nil {
		t.Fatal(err)
	}
	if got := g.rows("t"); !maps.Equal(got, want) {
		t.Errorf("the restored table has\n%v, want\n%v", got, want)
	}
	g.rounds(4)
	g.fsck()
	g.fill("t", 4)
	if got := g.rows("t"); len(got) != len(want) || maps.Equal(got, want) {
		t.Errorf("after writes the restored table has %v", got)
	}
	if _, err := g.c.Backups().Import(g.ctx, "00", "00"); err == nil || errors.Is(err, client.ErrNoBackup) {
		t.Errorf("an import of ids that are none: %v", err)
	}
}

// TestStagedBlobsExpire: blobs that were staged for an import and never imported are deleted after a time, unlike those that users have
// stored, and garbage collection frees their bytes.
func TestStagedBlobsExpire(t *testing.T) {
	t.Parallel()
	f := newBackupClusterOf(t, 1, func(c *node.Config) { c.Tuning.StagedFor = time.Millisecond })
	kept := good(f.c.Blobs().Put(f.ctx, "kept", bytes.NewReader([]byte("kept"))))
	staged := good(f.c.Blobs().PutStaged(f.ctx, "staged", bytes.NewReader([]byte("staged"))))
	for len(good(f.c.Blobs().List(f.ctx, "", false)).Blobs) > 1 {
		if time.Sleep(20 * time.Millisecond); f.ctx.Err() != nil {
			t.Fatal("a staged blob is kept")
		}
	}
	f.rounds(4)
	f.fsck()
	if _, err := f.c.Blobs().Stat(f.ctx, staged.ID, 0, 1, false); !errors.Is(err, client.ErrNoBlob) {
		t.Errorf("the bytes of a blob that has expired: %v", err)
	}
	if _, err := f.c.Blobs().Stat(f.ctx, kept.ID, 0, 1, false); err != nil {
		t.Errorf("a stored file: %v", err)
	}
}
