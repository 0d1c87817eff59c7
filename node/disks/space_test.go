package disks

import (
	"errors"
	"math"
	"testing"

	"github.com/steledb/stele/rpc"
)

// TestRoomToVote: a node with less free disk space than its reserve does not become a voter.
func TestRoomToVote(t *testing.T) {
	for reserve, memory := range map[int64]bool{1: true, math.MaxInt64: false} {
		s := New(Config{Dirs: []string{t.TempDir()}, ReserveBytes: reserve})
		err := s.CheckVoteSpace()
		if memory != (err == nil) {
			t.Errorf("with a reserve of %d: %v", reserve, err)
		}
		if !memory && !errors.Is(err, rpc.CodeUnavailable) {
			t.Errorf("refused with %v, want that it may be asked again", err)
		}
	}
}
