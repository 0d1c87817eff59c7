package node_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/verify"
	"github.com/steledb/stele/table"
)

// keyFile writes a file of master keys, each of one repeated byte.
func keyFile(t *testing.T, keys ...byte) string {
	t.Helper()
	var text strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&text, hex.EncodeToString(bytes.Repeat([]byte{k}, blobfs.MasterKeyBytes)))
	}
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte("# the current one first\n\n"+text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func startEncrypted(dir string, e masterkeys.Source) (*node.Node, error) {
	return node.Start(context.Background(), node.Config{
		DataDirs: []string{dir}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20, Encryption: e,
	})
}

// filesWith returns the files below a folder that hold the words.
func filesWith(t *testing.T, dir string, words []byte) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if bytes.Contains(content, words) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// writeEncrypted writes values and row keys with the words in them, some of which are in SSTables and some in the log, and stops the node.
func writeEncrypted(t *testing.T, n *node.Node, words string) {
	t.Helper()
	ctx := context.Background()
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := table.ParseFamilySpec("f:compression=none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		row := fmt.Sprintf("%s of row %d", words, i)
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte("the value is "+words))); err != nil {
			t.Fatal(err)
		}
		if i == 100 {
			if err := c.Tables().Compact(ctx, "t", true); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Close()
	stop(t, n)
}

// What is written to tables is in no file of an encrypted node's data folder, and the node and Check read it with its key alone.
func TestEncryptedNode(t *testing.T) {
	t.Parallel()
	const words = "attack at dawn"
	plain, dir := t.TempDir(), t.TempDir()
	n, err := startEncrypted(plain, masterkeys.Source{})
	if err != nil {
		t.Fatal(err)
	}
	writeEncrypted(t, n, words)
	if len(filesWith(t, plain, []byte(words))) < 2 {
		t.Fatal("a node in the clear has the words in less than two files, so the search is wrong")
	}
	key := masterkeys.Source{File: keyFile(t, 1)}
	if n, err = startEncrypted(dir, key); err != nil {
		t.Fatal(err)
	}
	writeEncrypted(t, n, words)
	if names := filesWith(t, dir, []byte(words)); len(names) > 0 {
		t.Errorf("plaintext is in %q", names)
	}

	for name, e := range map[string]masterkeys.Source{"no key": {}, "another key": {File: keyFile(t, 2)}} {
		if n, err := startEncrypted(dir, e); !errors.Is(err, blobfs.ErrMasterKey) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				stop(t, n)
			}
		}
		if _, err := verify.Folders(context.Background(), []string{dir}, e, func(verify.Problem) {}); !errors.Is(err, blobfs.ErrMasterKey) {
			t.Errorf("check with %s: %v", name, err)
		}
	}
	if n, err := startEncrypted(plain, key); !errors.Is(err, blobfs.ErrNotEncrypted) {
		t.Errorf("a key for data in the clear: %v", err)
		if err == nil {
			stop(t, n)
		}
	}
	sum, err := verify.Folders(context.Background(), []string{dir}, key, func(p verify.Problem) { t.Errorf("%+v", p) })
	if err != nil || sum.SSTables == 0 || sum.Logs == 0 {
		t.Errorf("check: %+v, %v", sum, err)
	}

	// The next key, of a command, with the old one once more.
	rotated := masterkeys.Source{Command: "cat " + keyFile(t, 2, 1)}
	if n, err = startEncrypted(dir, rotated); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	if n, err = startEncrypted(dir, masterkeys.Source{File: keyFile(t, 2)}); err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	c, err := client.Open(context.Background(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows := 0
	scan := c.Table("t").Scan(context.Background())
	for scan.Next() {
		if r := scan.Row(); len(r.Cells) != 1 || string(r.Cells[0].Value) != "the value is "+words {
			t.Fatalf("row %q is %v", r.Key, r.Cells)
		}
		rows++
	}
	if err := scan.Err(); err != nil || rows != 200 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// Master keys that are none keep a node from starting, and no error has a part of a key.
func TestMasterKeySources(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("5a", blobfs.MasterKeyBytes)
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# one\n"+good[2:]), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, e := range []masterkeys.Source{{File: file}, {Command: "cat " + file}} {
		wantNoStart(t, "short", e, "line 2 has 62 characters", good[:10])
	}
	wantNoStart(t, "no command", masterkeys.Source{Command: "no-such-vault"}, `exit status 127: "`, good[:10])
}

func wantNoStart(t *testing.T, name string, e masterkeys.Source, want, never string) {
	t.Helper()
	dir := t.TempDir()
	n, err := startEncrypted(dir, e)
	if err == nil {
		stop(t, n)
	}
	var bad *masterkeys.Error
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), never) {
		t.Errorf("%s: %v", name, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "blobs")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: there is a block store now: %v", name, err)
	}
}

// If the command for the master keys fails, Start repeats it: the key service may be down. Check does not repeat it.
func TestMasterKeyCommandFails(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "flag")
	e := masterkeys.Source{Command: fmt.Sprintf("test -e %s && cat %s && exit 0; echo no such vault >&2; exit 3", flag, keyFile(t, 1))}
	var bad *masterkeys.Error
	if _, err := verify.Folders(context.Background(), []string{t.TempDir()}, e, func(verify.Problem) {}); !errors.As(err, &bad) || !strings.Contains(err.Error(), `exit status 3: "no such vault"`) {
		t.Errorf("check: %v", err)
	}
	cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20, Encryption: e}
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Waiting = func(what string) {
		if strings.Contains(what, "master keys") {
			cancel()
		}
	}
	if n, err := node.Start(ctx, cfg); !errors.As(err, &bad) {
		t.Errorf("ended while it waits: %v", err)
		if err == nil {
			stop(t, n)
		}
	}
	waits := 0
	cfg.Waiting = func(what string) {
		if !strings.Contains(what, "master keys") {
			return
		}
		if waits++; waits == 2 {
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	n, err := node.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	if waits != 2 {
		t.Errorf("waited %d times", waits)
	}
}
