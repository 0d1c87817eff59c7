package monitor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSocketOfKilledProcess: a socket that was left is replaced, another file is not.
func TestSocketOfKilledProcess(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := listenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenPrivate(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second listener: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenPrivate(path); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}
