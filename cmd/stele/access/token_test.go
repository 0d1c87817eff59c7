package access

import (
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// An expired token admits no host, however often it was used.
func TestUsesLeft(t *testing.T) {
	now := time.UnixMilli(5000)
	for _, c := range []struct {
		token client.TokenInfo
		want  string
	}{
		{client.TokenInfo{Uses: 2}, "2"},
		{client.TokenInfo{Uses: 2, EndsMS: 5001}, "2"},
		{client.TokenInfo{Uses: 2, EndsMS: 5000}, "expired"},
	} {
		if got := left(&c.token, now); got != c.want {
			t.Errorf("%+v: %s, want %s", c.token, got, c.want)
		}
	}
}
