package world

import "testing"

// The identity file of a node is the only file that does not change on a disk that corrupts data.
func TestCorruptible(t *testing.T) {
	for name, want := range map[string]bool{
		"/data/identity": false, "/data/.identity.123": false,
		"/data/raft/raft.db": true, "/data/peers": true, "/data/blobs/blobs/1of1": true, "/data/security/node.pem": true,
	} {
		if got := corruptible(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
