package lockserver

import (
	"context"
	"errors"
	"testing"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
)

// manySessions is a group that has that many.
type manySessions int

func (n manySessions) Sessions() int { return int(n) }

// opener is a Service that opens sessions only.
type opener struct{ metaapi.Service }

func (opener) OpenSession(context.Context, string, time.Duration) (metaapi.SessionID, time.Duration, error) {
	return 1, time.Second, nil
}

// Clients cannot take the last sessions: nodes need them to come back.
func TestSessionsForNodes(t *testing.T) {
	const most = metaapi.SessionsMax - metaapi.SessionsForNodes
	for open, want := range map[manySessions]bool{0: true, most - 1: true, most: false, metaapi.SessionsMax: false} {
		_, _, err := clientService{opener{}, open, nil}.OpenSession(t.Context(), "client", 0)
		var full *metaapi.TooLargeError
		if want && err != nil || !want && (!errors.As(err, &full) || full.What != metaapi.LimitSessions || full.Limit != most) {
			t.Errorf("with %d sessions open: %v", open, err)
		}
	}
}
