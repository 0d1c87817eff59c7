package monitor

import (
	"io"
	"net/http"
	"net/http/httptest"
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
