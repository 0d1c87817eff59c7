package blobs

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
)

func TestStoreStatusJSON(t *testing.T) {
	s := clitest.Fill(&client.StoreStatus{})
	s.Nodes = append(s.Nodes, client.NodeStore{Name: "empty"})
	for name, s := range map[string]*client.StoreStatus{"status": s, "status-empty": {}} {
		clitest.Golden(t, name, func(a *cli.App) error { return printStoreStatus(a, clitest.Received(t, s)) })
	}
}

func TestFsckJSON(t *testing.T) {
	replica := func(name, state string) client.ReplicaInfo {
		r := clitest.Fill(&client.ReplicaInfo{})
		r.Name, r.State = name, state
		return *r
	}
	s := clitest.Fill(&client.FsckStep{})
	x := &s.Findings[0].ExtentInfo
	x.Replicas = []client.ReplicaInfo{replica("n2", api.ReplicaCorrupt), {Node: "x", Name: "n1", State: api.ReplicaGood}}
	s.Findings = append(s.Findings, api.BlobFinding{ID: "lost"})
	clitest.Golden(t, "fsck", func(a *cli.App) error {
		r := &fsckRun{a: a, unreachable: map[string]int64{}, missing: map[string]int64{}}
		r.take(clitest.Received(t, s), nil)
		if err := r.report(1500 * time.Millisecond); cli.FaultOf(err).Code != cli.ExitUnhealthy {
			return errors.New("no fault")
		}
		return nil
	})
	clitest.Golden(t, "fsck-empty", func(a *cli.App) error { return (&fsckRun{a: a}).report(0) })
}

func TestBlobStatJSON(t *testing.T) {
	s := clitest.Fill(&client.BlobStatus{})
	s.Parts = append(s.Parts, client.ExtentInfo{Index: 1})
	for name, s := range map[string]*client.BlobStatus{"stat": s, "stat-empty": {}} {
		clitest.Golden(t, name, func(a *cli.App) error {
			s := clitest.Received(t, s)
			return printBlobStat(a, &s.BlobInfo, append([]client.ExtentInfo(nil), s.Parts...)) // as statBlob collects them
		})
	}
}

func TestVerifiedJSON(t *testing.T) {
	s := clitest.Received(t, clitest.Fill(&client.BlobStatus{}))
	clitest.Golden(t, "verify", func(a *cli.App) error {
		var y tally
		for i := range s.Parts {
			y.add(&s.Parts[i])
			printReplicaProblem(a, s.ID, s.Parts[i].Index, &s.Parts[i].Replicas[0])
		}
		_ = reportVerified(a, s.ID, &y, 1500*time.Millisecond)
		return nil
	})
}
