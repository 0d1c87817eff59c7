package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// someBytes are bytes that no compression makes small.
func someBytes(seed uint64, n int) []byte {
	p := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	rng.Read(p)
	return p
}

func putBlob(t *testing.T, c *client.Client, name string, p []byte) string {
	t.Helper()
	b, err := c.Blobs().Put(context.Background(), name, bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	if b.Bytes != int64(len(p)) || b.Name != name || b.Kind != api.BlobOfUser {
		t.Fatalf("stored %+v", b)
	}
	return b.ID
}

func checkBlob(t *testing.T, c *client.Client, id string, want []byte) {
	t.Helper()
	var got bytes.Buffer
	if _, err := c.Blobs().Get(context.Background(), id, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("blob %s: %d bytes of %d, %v", id, got.Len(), len(want), err)
	}
}

// replicas returns the number of replicas of all extents in each state.
func replicas(s *client.BlobStatus) map[string]int {
	n := map[string]int{}
	for _, x := range s.Parts {
		for _, r := range x.Replicas {
			n[r.State]++
		}
	}
	return n
}

func statBlob(t *testing.T, c *client.Client, id string, deep bool) *client.BlobStatus {
	t.Helper()
	s, err := c.Blobs().Stat(context.Background(), id, 0, 0, deep)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPeoplesBlobs: files are stored on three nodes, and come back from any of them, with one node
// away and with a byte flipped on another.
func TestPeoplesBlobs(t *testing.T) {
	t.Parallel()
	f := form(t, 3, func(cfg *node.Config) { cfg.ExtentBytes = 8 << 20 }) // each file has one extent
	ctx := context.Background()
	c := f.client(0)
	long := someBytes(1, 5<<20+12345)
	contents := map[string][]byte{}
	for name, p := range map[string][]byte{"empty": nil, "small": []byte("x"), "one piece": someBytes(2, 1<<20), "long": long} {
		contents[putBlob(t, c, name, p)] = p
	}
	for i := range f.nodes {
		for id, p := range contents {
			checkBlob(t, f.client(i), id, p)
		}
	}
	page, err := f.client(2).Blobs().List(ctx, "", false)
	if err != nil || len(page.Blobs) != len(contents) {
		t.Fatalf("%+v, %v", page, err)
	}
	var id string
	for _, b := range page.Blobs {
		if b.Bytes != int64(len(contents[b.ID])) {
			t.Errorf("listed %+v", b)
		}
		if b.Name == "long" {
			id = b.ID
		}
	}
	if s := statBlob(t, c, id, true); replicas(s)[api.ReplicaGood] != 3 || s.Parts[0].ReplicationFactor != 3 || s.Replicas != 3 {
		t.Fatalf("after the put: %+v", s)
	}

	awaitAllLogReplicas(t, f)
	if sum, found := fsck(t, c, true); found[api.BlobOfUser] != 0 || sum.Extents < int64(len(contents)) || len(sum.Unnamed) != 0 {
		t.Errorf("check of a sound store: %+v, %v", sum, found)
	}

	store, err := c.BlockStore().Status(ctx)
	if err != nil || store.ReplicationFactor != 3 || len(store.Nodes) != 3 {
		t.Fatalf("status of the store: %+v, %v", store, err)
	}
	for _, n := range store.Nodes {
		// One of them has METADATA's tablets, and their log.
		if n.Error != "" || n.Logs < 1 || n.Logs > 2 || n.LogReplicas < 1 || n.Draining || n.Alarm != "" {
			t.Errorf("status of a node's part: %+v", n)
		}
	}

	// A byte is flipped on n2, and n3 goes.
	found, err := filepath.Glob(filepath.Join(f.cfgs[1].DataDirs[0], "blobs", "blobs", id+".0of1"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of the replica: %v, %v", found, err)
	}
	f.stop(2)
	flipByte(t, found[0], 4096+70_000)
	s := statBlob(t, c, id, true)
	n := replicas(s)
	if n[api.ReplicaGood] != 1 || n[api.ReplicaCorrupt] != 1 || n[api.ReplicaUnreachable] != 1 {
		t.Fatalf("with a flipped byte and a node away: %+v", s)
	}
	for _, r := range s.Parts[0].Replicas {
		switch {
		case r.Name == "n2" && (r.State != api.ReplicaCorrupt || r.File != found[0] || r.Offset != 4096+65536):
			t.Errorf("the flipped byte: %+v", r)
		case r.Name == "n3" && r.State != api.ReplicaUnreachable:
			t.Errorf("the node that is away: %+v", r)
		}
	}
	if sum, found := fsck(t, c, false); found[api.BlobOfUser] != len(contents) || sum.Silent[0] != "n3" {
		t.Errorf("check with a node away: %+v, %v", sum, found)
	}
	store, err = c.BlockStore().Status(ctx)
	if err != nil || len(store.Nodes) != 3 {
		t.Fatalf("status of the store: %+v, %v", store, err)
	}
	for _, n := range store.Nodes {
		if (n.Name == "n3") != (n.Error != "") {
			t.Errorf("status with n3 away: %+v", n)
		}
	}
	for i := range 2 {
		checkBlob(t, f.client(i), id, long)
	}
	other := putBlob(t, c, "with two", someBytes(3, 100_000))
	checkBlob(t, f.client(1), other, someBytes(3, 100_000))
	if s := statBlob(t, c, other, true); replicas(s)[api.ReplicaGood] != 2 {
		t.Errorf("stored on two nodes: %+v", s)
	}

	if err := c.Blobs().Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := f.client(i).Blobs().Get(ctx, id, io.Discard); !errors.Is(err, client.ErrNoBlob) {
			t.Errorf("a deleted blob: %v", err)
		}
	}
	if err := c.Blobs().Delete(ctx, id); !errors.Is(err, client.ErrNoBlob) {
		t.Errorf("deleted twice: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.cfgs[0].DataDirs[0], "blobs", "blobs", id+"*")); len(left) > 0 {
		t.Errorf("left of a deleted blob: %v", left)
	}
}

// fsck checks the whole store, and counts the findings by kind.
func fsck(t *testing.T, c *client.Client, deep bool) (sum client.FsckStep, found map[string]int) {
	t.Helper()
	found = map[string]int{}
	for after := ""; ; {
		s, err := c.BlockStore().Fsck(context.Background(), after, deep)
		if err != nil {
			t.Fatal(err)
		}
		sum.Extents += s.Extents
		sum.Findings = append(sum.Findings, s.Findings...)
		sum.Unnamed = append(sum.Unnamed, s.Unnamed...)
		sum.Silent = append(sum.Silent, s.Silent...)
		for _, x := range s.Findings {
			found[x.Kind]++
		}
		if after = s.Next; after == "" {
			return sum, found
		}
	}
}

func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, 1)
	if _, err := file.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x20
	if _, err := file.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// TestBlobOddities: invalid requests of a malicious client.
func TestBlobOddities(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.start(0)
	c := f.client(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, id := range []string{"", "x", strings.Repeat("0", 32), strings.Repeat("f", 32), strings.Repeat("g", 32), strings.Repeat("é", 16), "../../cluster", strings.Repeat("a", 1000)} {
		_, errStat := c.Blobs().Stat(ctx, id, 0, 0, false)
		_, errRead := c.Blobs().Read(ctx, id, make([]byte, 10), 0)
		for _, err := range []error{errStat, errRead, c.Blobs().Delete(ctx, id)} {
			if !errors.Is(err, client.ErrNoBlob) {
				t.Errorf("id %q: %v", id, err)
			}
		}
	}
	id := putBlob(t, c, strings.Repeat("n", api.BlobNameBytesMax), []byte("hello"))
	if _, err := c.Blobs().Put(ctx, strings.Repeat("n", api.BlobNameBytesMax+1), strings.NewReader("hello")); !errors.Is(err, table.ErrLimit) {
		t.Errorf("a name that is too long: %v", err)
	}
	p := make([]byte, 10)
	if n, err := c.Blobs().Read(ctx, id, p, 3); err != nil || string(p[:n]) != "lo" {
		t.Errorf("read across the end: %q, %v", p[:n], err)
	}
	if n, err := c.Blobs().Read(ctx, id, p, 5); err != nil || n != 0 {
		t.Errorf("read behind the end: %d, %v", n, err)
	}
	bad := errors.New("reader is odd")
	if _, err := c.Blobs().Put(ctx, "", io.MultiReader(bytes.NewReader(make([]byte, 3<<20)), &failing{bad})); !errors.Is(err, bad) {
		t.Errorf("a reader that fails: %v", err)
	}
	if page, err := c.Blobs().List(ctx, "", true); err != nil || len(page.Blobs) != 1 || page.Blobs[0].ID != id {
		t.Errorf("left: %+v, %v", page, err)
	}
	for _, after := range []string{"x", "/blobs/x", "#", "unnamed#x", "/tablets#99999999999999999999", "/tablets/x/y#-1"} {
		if s, err := c.BlockStore().Fsck(ctx, after, false); err == nil && len(s.Findings) > 0 || err != nil && !errors.Is(err, rpc.CodeBadRequest) {
			t.Errorf("a step from %q: %+v, %v", after, s, err)
		}
	}
	testUnnamed(t, f, c, id)
	testUploads(t, f)
}

// asNode identifies itself to the lock service as a node.
type asNode struct{}

func (asNode) Dial(ctx context.Context, addr string) (session.Peer, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{})
	if err != nil {
		return session.Peer{}, err
	}
	return session.Peer{Service: metaapi.RemoteForNode(conn), Close: conn.Close}, nil
}

// testUnnamed has a name taken from under a blob: it is found as what nothing needs.
func testUnnamed(t *testing.T, f *testCluster, c *client.Client, id string) {
	ctx := context.Background()
	locks, err := session.NewClient(session.Config{Locator: session.Addresses{f.addrs[0]}, Dialer: asNode{}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Delete(ctx, "/blobs/"+id, metaapi.AnyGeneration, metaapi.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if sum, _ := fsck(t, c, false); len(sum.Unnamed) != 1 || sum.Unnamed[0].ID != id || sum.Unnamed[0].Bytes != 5 {
		t.Errorf("a blob without a name: %+v", sum)
	}
	if s := statBlob(t, c, id, true); s.Kind != api.BlobUnnamed || replicas(s)[api.ReplicaGood] != 1 {
		t.Errorf("a blob without a name: %+v", s)
	}
	if err := c.Blobs().Delete(ctx, id); !errors.Is(err, client.ErrNoBlob) {
		t.Errorf("delete a blob that has no name: %v", err)
	}
}

type failing struct{ err error }

func (r *failing) Read([]byte) (int, error) { return 0, r.err }

// testUploads calls the methods one by one, out of order.
func testUploads(t *testing.T, f *testCluster) {
	ctx := context.Background()
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := func() api.BlobUpload {
		t.Helper()
		var u api.BlobUpload
		r := api.BlobRequest{Method: api.MethodBlobOpen}
		if err := conn.Call(ctx, r.Method, r.Append, u.Decode); err != nil {
			t.Fatal(err)
		}
		return u
	}
	do := func(r api.BlobRequest) error {
		return api.FromRPC(conn.Call(ctx, r.Method, r.Append, nil))
	}
	write := func(u uint64, off int64, s string) error {
		return do(api.BlobRequest{Method: api.MethodBlobWrite, Upload: u, Offset: off, Data: []byte(s)})
	}
	seal := func(u uint64, length int64) error {
		return do(api.BlobRequest{Method: api.MethodBlobSeal, Upload: u, Length: length})
	}
	u := open()
	for i, want := range []struct {
		err  error
		want error
	}{
		{write(u.Upload, 0, "hello"), nil},
		{write(u.Upload, 0, "hello"), nil},             // again
		{write(u.Upload, 3, "lo, you"), nil},           // overlaps
		{write(u.Upload, 11, "?"), rpc.CodeBadRequest}, // leaves a gap
		{seal(u.Upload, 11), rpc.CodeBadRequest},
		{seal(u.Upload, 10), nil},
		{seal(u.Upload, 10), nil}, // again
		{write(u.Upload, 10, "!"), rpc.CodeBadRequest},
		{write(u.Upload+1, 0, "x"), client.ErrUploadExpired},
		{seal(u.Upload+1, 0), client.ErrUploadExpired},
		{do(api.BlobRequest{Method: api.MethodBlobAbort, Upload: u.Upload}), nil},
		{do(api.BlobRequest{Method: api.MethodBlobAbort, Upload: u.Upload}), nil},
		{seal(u.Upload, 10), client.ErrUploadExpired},
	} {
		if !errors.Is(want.err, want.want) {
			t.Errorf("call %d: %v, want %v", i, want.err, want.want)
		}
	}
	checkBlob(t, f.client(0), u.ID, []byte("hello, you"))

	var ups []api.BlobUpload
	for range api.UploadsMax {
		ups = append(ups, open())
	}
	if err := do(api.BlobRequest{Method: api.MethodBlobOpen}); !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("one upload too many: %v", err)
	}
	for _, u := range ups {
		if err := do(api.BlobRequest{Method: api.MethodBlobAbort, Upload: u.Upload}); err != nil {
			t.Error(err)
		}
	}
	open()
	if files, _ := filepath.Glob(filepath.Join(f.cfgs[0].DataDirs[0], "blobs", "blobs", fmt.Sprintf("%s*", ups[0].ID))); len(files) > 0 {
		t.Errorf("left of an aborted upload: %v", files)
	}
}
