package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostHeader: where HTTP is plain, requests for another host are answered with 421 and nothing else.
func TestHostHeader(t *testing.T) {
	h := checkHost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") }), []string{"host1", "db.example"})
	for host, ok := range map[string]bool{
		"localhost": true, "LOCALHOST:7108": true, "127.0.0.1:7108": true, "[::1]:7108": true, "::1": true, "10.1.2.3": true, "": true,
		"host1:7108": true, "db.example.": true, "x.localhost": true,
		"evil.example:7108": false, "localhost.evil.example": false, "a": false, "127.0.0.1.evil.example": false, "host1.evil": false,
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK && w.Body.String() == "page"; got != ok || !ok && w.Code != http.StatusMisdirectedRequest {
			t.Errorf("host %q: %d %q", host, w.Code, w.Body)
		}
	}
}

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
	if code, text := page(t, http.DefaultClient, url+profilesPath, ""); code != http.StatusNotFound {
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
	if code, text := page(t, unix, "http://stele"+profilesPath+"goroutine?debug=1", ""); code != http.StatusOK || !strings.Contains(text, "goroutine profile") {
		t.Errorf("profiles on the socket: %d %.100q", code, text)
	}
	unix.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if _, err := listenPrivate(socket); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second listener: %v", err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

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

// TestLivenessWithoutQuorum: a node that starts, or has no leader, lives though it is not ready.
func TestLivenessWithoutQuorum(t *testing.T) {
	n := &Node{done: make(chan struct{}), ctx: t.Context()}
	stage := "other nodes"
	n.stage.Store(&stage)
	ask := func(h http.HandlerFunc) int {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	if live, ready := ask(n.live), ask(n.ready); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("a node that waits for others: live %d, ready %d", live, ready)
	}
	n.failure.err = io.ErrUnexpectedEOF
	close(n.done)
	if live, ready := ask(n.live), ask(n.ready); live != http.StatusServiceUnavailable || ready != http.StatusServiceUnavailable {
		t.Errorf("a node that has failed: live %d, ready %d", live, ready)
	}
}
