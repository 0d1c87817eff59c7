package world

import "testing"

// Keys and join tokens do not change on a disk that corrupts data.
func TestCorruptible(t *testing.T) {
	for name, want := range map[string]bool{
		"/data/identity": true, "/token": false,
		"/data/raft/raft.db": true, "/data/peers": true, "/data/blobs/blobs/1of1": true, "/data/security/node.pem": false,
	} {
		if got := corruptible(name, votersSpare); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if corruptible("/data/raft/raft.db", votersSpare-1) {
		t.Error("the log of one of two voters")
	}
}
