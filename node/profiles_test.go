package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page asks for a page on loopback.
func page(t *testing.T, c *http.Client, url, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// TestProfilesAreOffOnLoopback: every process of the host can reach the HTTP port on loopback. If configured, profiles are on a socket that only the node's user
// may open, and that is removed with the node.
func TestProfilesAreOffOnLoopback(t *testing.T) {
	dir, err := os.MkdirTemp("", "p") // short: a socket's path has 100 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "profiles")
	n, err := Start(t.Context(), Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "127.0.0.1:0", MemoryBytes: MemoryMin, Profiles: socket, ExtentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + n.HTTPAddr()
	if code, text := page(t, http.DefaultClient, url+"/debug/pprof/", ""); code != http.StatusNotFound {
		t.Errorf("profiles on loopback: %d %.100q", code, text)
	}
	if code, text := page(t, http.DefaultClient, url+"/metrics", "evil.example"); code != http.StatusMisdirectedRequest || strings.Contains(text, "stele_") {
		t.Errorf("metrics for another host: %d %.100q", code, text)
	}
	if code, text := page(t, http.DefaultClient, url+"/metrics", ""); code != http.StatusOK || !strings.Contains(text, "stele_") {
		t.Errorf("metrics: %d %.100q", code, text)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket of profiles: %v, %v", info, err)
	}
	unix := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	if code, text := page(t, unix, "http://stele"+"/debug/pprof/"+"goroutine?debug=1", ""); code != http.StatusOK || !strings.Contains(text, "goroutine profile") {
		t.Errorf("profiles on the socket: %d %.100q", code, text)
	}
	unix.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
