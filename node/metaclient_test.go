package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	metaapi "github.com/steledb/stele/raftmeta/api"
)

// TestUntilLed: a node waits for a leader, and for one whose disk is full, and for nothing else.
func TestUntilLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{log: slog.New(slog.DiscardHandler)}
		answers := []error{metaapi.ErrNotReady, fmt.Errorf("open session: %w", metaapi.ErrDiskFull), metaapi.ErrNotReady, metaapi.ErrNotFound}
		changeRequest := 0
		err := n.untilLeader(t.Context(), func(context.Context) error {
			changeRequest++
			return answers[changeRequest-1]
		})
		if !errors.Is(err, metaapi.ErrNotFound) || changeRequest != len(answers) {
			t.Errorf("%v after %d questions", err, changeRequest)
		}
	})
}
