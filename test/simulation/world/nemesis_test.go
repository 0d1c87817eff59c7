package world

import "testing"

// Files of which only this host has a copy do not change on a disk that corrupts data.
func TestCorruptible(t *testing.T) {
	for name, want := range map[string]bool{
		"/data/identity": false, "/data/.identity.123": false,
		"/data/raft/raft.db": true, "/data/peers": true, "/data/blobs/blobs/1of1": true, "/data/security/node.pem": false,
	} {
		if got := corruptible(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
