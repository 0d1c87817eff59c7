package enrol_test

import (
	"testing"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/security/keydir"
)

// TestInitialiseFS: the keys of a first node are on the given file system, and belong to its data
// directory.
func TestInitialiseFS(t *testing.T) {
	fsys := vfs.NewMem(vfs.MemOptions{})
	dirs := []string{"/data"}
	admin, err := enrol.InitialiseFS(fsys, dirs, "/data/security", "", []string{"10.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folders, err := identity.InspectFS(fsys, dirs)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := certs.Load(keydir.On(fsys, "/data/security"), "/data/security", folders.Node, "")
	if err != nil {
		t.Fatal(err)
	}
	if keys.Authority == nil || admin.Peer().Cluster != keys.Credential.Peer().Cluster {
		t.Errorf("keys are %+v, the first user is %v", keys, admin.Peer())
	}
	if _, err := enrol.InitialiseFS(fsys, dirs, "/data/security", "", nil, time.Now()); err == nil {
		t.Error("existing keys were replaced")
	}
}
