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
		asked := 0
		err := n.untilLed(t.Context(), func(context.Context) error {
			asked++
			return answers[asked-1]
		})
		if !errors.Is(err, metaapi.ErrNotFound) || asked != len(answers) {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
}
