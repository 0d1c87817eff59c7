package blobs

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
)

// The status reports the last garbage collection, whichever node ran it, and one that is stopped.
func TestSweepSentence(t *testing.T) {
	now := time.UnixMilli(1700000000000)
	s := &client.StoreStatus{Nodes: []client.NodeStore{{Name: "n1"}, {Name: "n2", Error: "silent", Sweeps: 9, SweptAt: now}}}
	if got := sweepSentence(s, now); got != "" {
		t.Errorf("before the first round: %q", got)
	}
	s.Nodes = append(s.Nodes,
		client.NodeStore{Name: "n3", Sweeps: 4, SweepRound: 11, SweptAt: now.Add(-time.Hour), SweptFound: 9, SweptAside: 4, SweptRemoved: 1, SweptRemovedBytes: 2048},
		client.NodeStore{Name: "n4", SweepsFailed: 1, SweepRound: 10, SweptAt: now.Add(-2 * time.Hour), SweepError: "sweep round 10: no answer"})
	if got, want := sweepSentence(s, now), "the last garbage collection, round 11, ended 1h 0m ago: 9 extents found, 4 quarantined, 1 removed, 2 KiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Nodes[3].SweptAt = now.Add(-time.Minute)
	if got, want := sweepSentence(s, now), "the last garbage collection failed 1m ago: sweep round 10: no answer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Nodes[0].SweepHalted = "n9: extent x was asked for"
	if got := storeSentence((&cli.App{}), s); !strings.HasPrefix(got, "degraded") || !strings.Contains(got, "garbage collection is stopped: n9: extent x was asked for") {
		t.Errorf("stopped: %q", got)
	}
}

// A store whose only fault is a sealed commit log extent with too few replicas is not healthy.
func TestUnderReplicatedLog(t *testing.T) {
	s := &client.StoreStatus{Nodes: []client.NodeStore{{Name: "n1", Known: true, LogUnder: 2}, {Name: "n2", Known: true, LogUnder: 1}}}
	if got, want := storeSentence(&cli.App{}, s), "degraded: 2 of 2 nodes answer; 3 commit log extents under-replicated"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Nodes[0].LogUnder, s.Nodes[1].LogUnder = 0, 0
	if got := storeSentence(&cli.App{}, s); !strings.HasPrefix(got, "healthy") {
		t.Errorf("without: %q", got)
	}
}

// While nodes count their extents after a change of membership, the number of under-replicated
// extents is unknown, not 0.
func TestStoreStatusWhileExtentsAreCounted(t *testing.T) {
	store := &client.StoreStatus{ReplicationFactor: 3, Nodes: []client.NodeStore{{Node: "a", Name: "n1", Known: true, Bytes: 5, Under: 2}, {Node: "b", Name: "n2", Bytes: 7, Under: 1}}}
	a, out, errs := clitest.New()
	if err := printStoreStatus(a, store); err != nil {
		t.Fatal(err)
	}
	if err := a.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := errs.String(), "degraded: 2 of 2 nodes answer; 2 extents under-replicated, 0 B to copy; the number of under-replicated extents is unknown: n2 still"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want prefix %q", got, want)
	}
	if !regexp.MustCompile(`(?m)^n2 +counting +0 +7 B +\? +\? +0 `).MatchString(out.String()) {
		t.Errorf("%s", out)
	}
}
