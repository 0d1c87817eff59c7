package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/verify"
	"github.com/steledb/stele/table"
)

func startOn(dirs ...string) (*node.Node, error) {
	return node.Start(context.Background(), node.Config{
		DataDirs: dirs, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20,
	})
}

// connect returns a client of n and a context for the test.
func connect(t testing.TB, n *node.Node) (context.Context, *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return ctx, c
}

func createTable(t testing.TB, ctx context.Context, c *client.Client, name string) {
	t.Helper()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, name, spec); err != nil {
		t.Fatal(err)
	}
}

// filled makes a node of the folders that has a table in SSTables, and stops it.
func filled(t *testing.T, dirs ...string) {
	t.Helper()
	n, err := startOn(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, c := connect(t, n)
	createTable(t, ctx, c, "t")
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	if err := c.Tables().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
}

// holds starts the node of the folders and looks for what filled wrote.
func holds(t *testing.T, dirs ...string) {
	t.Helper()
	n, err := startOn(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	ctx, c := connect(t, n)
	if row, err := c.Table("t").Get(ctx, "r"); err != nil || len(row.Cells) != 1 {
		t.Fatalf("got %+v, %v", row, err)
	}
}

// refused fails the test unless a start on the folders fails with an error that contains all of texts.
func refused(t *testing.T, dirs []string, texts ...string) {
	t.Helper()
	n, err := startOn(dirs...)
	if err == nil {
		stop(t, n)
		t.Fatalf("started on %q", dirs)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func TestFoldersInAnyOrder(t *testing.T) {
	t.Parallel()
	a, b, c := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new")
	filled(t, a, b)
	holds(t, b, a)
	holds(t, c, b, a) // one is added
	holds(t, a, c, b)
	refused(t, []string{a, b}, c, "give all its folders")
	sum, err := verify.Folders(context.Background(), []string{c, b, a}, masterkeys.Source{}, func(p verify.Problem) { t.Errorf("%+v", p) })
	if err != nil || sum.SSTables == 0 {
		t.Errorf("check: %+v, %v", sum, err)
	}
}

// TestFoldersRefused: whatever is wrong with the folders, no blob is deleted.
func TestFoldersRefused(t *testing.T) {
	t.Parallel()
	a, b, other, empty := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	filled(t, a, b)
	filled(t, other)
	refused(t, []string{b}, a, "give all its folders")
	refused(t, []string{a}, b)
	refused(t, []string{a, empty}, b)
	refused(t, []string{a, b, other}, a, other, "belongs to node")
	refused(t, []string{other, a, b}, a, other, "belongs to node")
	refused(t, []string{a, b, a + "/."}, "give it once")

	identity := filepath.Join(b, "identity")
	move(t, identity, identity+".away")
	refused(t, []string{a, b}, b, "holds data but no file")
	refused(t, []string{b}, b, "holds data but no file")
	move(t, identity+".away", identity)

	raft := filepath.Join(a, "raft")
	move(t, raft, raft+".away")
	refused(t, []string{a, b}, a, "log is missing")
	if err := os.Mkdir(raft, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, []string{b, a}, a, "log is missing")
	if err := os.Remove(raft); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(raft, os.DirFS(filepath.Join(other, "raft"))); err != nil {
		t.Fatal(err)
	}
	refused(t, []string{a, b})
	if err := os.RemoveAll(raft); err != nil {
		t.Fatal(err)
	}
	move(t, raft+".away", raft)
	holds(t, a, b)
}

// TestFoundingTakenUp: a first start that was broken off at any place does not keep
// the next one from founding the cluster.
func TestFoundingTakenUp(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	filled(t, a, b)
	for _, d := range []string{a, b} {
		if err := os.RemoveAll(filepath.Join(d, "blobs")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(d, "identity")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		body, _, _ := strings.Cut(string(text), ",\n  \"crc\"")
		edited := strings.NewReplacer(`"format": 3`, `"format": 2`, `"folders"`, `"founding": true, "folders"`).Replace(body) // version 2 has no checksum
		text = []byte(edited + "\n}\n")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(a, "raft")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b, "identity")); err != nil {
		t.Fatal(err)
	}
	filled(t, b, a)
	holds(t, a, b)
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestFoldersOfARunningNode: a second process on a node's data directories is rejected before it changes anything, or announces itself as the
// node.
func TestFoldersOfARunningNode(t *testing.T) {
	dir := t.TempDir()
	n, err := startOn(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	before, err := os.ReadFile(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, []string{dir}, dir, "in use by another process")
	after, err := os.ReadFile(filepath.Join(dir, "identity"))
	if err != nil || string(after) != string(before) {
		t.Errorf("identity is %q, %v; was %q", after, err, before)
	}
}
