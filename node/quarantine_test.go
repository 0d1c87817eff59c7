package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// A person gets back what the sweep has put aside by mistake, and lets the sweep go on that had halted for it.
func TestReviveAndResume(t *testing.T) {
	ctx := context.Background()
	f := newTestCluster(t, 1)
	f.startAll()
	content := someBytes(1, 300_000)
	id, other := putBlob(t, f.client(0), "kept", content), putBlob(t, f.client(0), "other", content)
	f.stop(0)
	var files []string
	for _, id := range []string{id, other} {
		found, err := filepath.Glob(filepath.Join(f.cfgs[0].DataDirs[0], "blobs", "blobs", id+".*"))
		if err != nil || len(found) != 1 {
			t.Fatalf("files of a blob: %v, %v", found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files { // as a sweep whose roots missed the blob would have
		if err := os.Rename(file, fmt.Sprintf("%s.q7-%d", file, time.Now().Unix())); err != nil {
			t.Fatal(err)
		}
	}
	f.startAll()
	c := f.client(0)
	part := func() *client.NodeStore {
		t.Helper()
		s, err := c.BlockStore().Status(ctx)
		if err != nil || len(s.Nodes) != 1 {
			t.Fatalf("status: %+v, %v", s, err)
		}
		return &s.Nodes[0]
	}
	if n := part(); n.Quarantined != int64(len(files)) || n.Alarm != "" {
		t.Fatalf("before anybody reads it: %+v", n)
	}
	var got bytes.Buffer
	if _, err := c.Blobs().Get(ctx, id, &got); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("what is needed is not served out of quarantine: %v", err)
	}
	if n := part(); !strings.Contains(n.Alarm, id) {
		t.Errorf("no alarm tells of %s: %+v", id, n)
	}
	for range 2 { // the second time there is nothing to do, which is no error
		if err := c.BlockStore().ResumeSweep(ctx); err != nil {
			t.Error(err)
		}
	}
	if n := part(); n.Alarm != "" {
		t.Errorf("an alarm is left: %+v", n)
	}
	if n, err := c.BlockStore().Revive(ctx, other); err != nil || n != 1 {
		t.Errorf("revive: %d, %v", n, err)
	}
	if n := part(); n.Quarantined != 0 {
		t.Errorf("still in quarantine: %+v", n)
	}
	checkBlob(t, c, id, content)
	checkBlob(t, c, other, content)
	if _, err := c.BlockStore().Revive(ctx, other); !errors.Is(err, client.ErrNoBlob) {
		t.Errorf("revived twice: %v", err)
	}
	if _, err := c.BlockStore().Revive(ctx, "xyz"); err == nil {
		t.Error("no id, and no error")
	}
}
