package node_test

import "testing"

// TestFullNodeDoesNotStopTheOthers: of three nodes one has no free disk space, and the two others vote.
func TestFullNodeDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 3)
	f.start(0)
	for i := range f.cfgs {
		f.cfgs[i].Join = f.addrs[:1]
	}
	f.cfgs[2].ReserveBytes = 1 << 60
	f.startAll()
	s := f.await(0, "two voters", votersAlive(2))
	for _, x := range s.Servers {
		if x.Name == f.cfgs[2].Name {
			t.Errorf("%s is a member of the group: %+v", x.Name, x)
		}
	}
}
