package blobs

import (
	"fmt"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// tally counts extents by state.
type tally struct {
	Extents    int64 `json:"extents"`
	Bytes      int64 `json:"bytes"`
	wanted     int64 // replicas that an extent should have; the maximum over the extents
	Good       int64 `json:"replicas"`         // good replicas
	Corrupt    int64 `json:"rotten_replicas"`  // corrupt replicas
	Under      int64 `json:"under_replicated"` // extents with too few good replicas, but at least one
	Unreadable int64 `json:"unreachable"`      // extents whose only good replicas may be on unreachable nodes
	Lost       int64 `json:"lost"`             // extents without a good replica on any node
}

// The states of an extent.
const (
	extentGood        = "good"
	extentUnder       = "under_replicated"
	extentDamaged     = "damaged" // corrupt on some node, good on others
	extentUnreachable = "unreachable"
	extentLost        = "lost"
)

// replicaState returns a state of the API as messages print it.
func replicaState(state string) string {
	if state == api.ReplicaCorrupt {
		return "corrupt"
	}
	return state
}

// prefixed returns prefix and s, or nothing if s is empty.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// add counts an extent.
func (t *tally) add(x *client.ExtentInfo) {
	t.Extents++
	t.Bytes += max(x.Bytes, 0)
	t.Good += int64(x.Count(api.ReplicaGood))
	t.classify(x)
}

// classify counts the problems of an extent, and returns its state.
func (t *tally) classify(x *client.ExtentInfo) (state string) {
	good, corrupt, unreachable := x.Count(api.ReplicaGood), x.Count(api.ReplicaCorrupt), x.Count(api.ReplicaUnreachable)
	t.wanted = max(t.wanted, x.ReplicationFactor)
	t.Corrupt += int64(corrupt)
	state = extentGood
	switch {
	case good == 0 && unreachable > 0:
		t.Unreadable++
		return extentUnreachable
	case good == 0:
		t.Lost++
		return extentLost
	case int64(good) < x.ReplicationFactor:
		t.Under++
		state = extentUnder
	}
	if corrupt > 0 {
		state = extentDamaged
	}
	return state
}

// tallyJSON is a tally with its verdict.
type tallyJSON struct {
	OK bool `json:"ok"`
	*tally
}

func (t *tally) json() tallyJSON { return tallyJSON{t.fault() == nil && t.Under == 0, t} }

// fault returns an error with exitUnhealthy if anything is lost, corrupt or unreachable. Extents
// that are only under-replicated are repaired by the nodes, and are no error.
func (t *tally) fault() error {
	if t.Lost+t.Unreadable+t.Corrupt > 0 {
		return cli.SilentExit(cli.ExitUnhealthy)
	}
	return nil
}

// sentence returns a one-line summary of the tally of what.
func (t *tally) sentence(a *cli.App, tty bool, what string) string {
	var parts []string
	addPart := func(n int64, thing, is string) {
		if n > 0 {
			parts = append(parts, cli.Plural(n, thing)+" "+is)
		}
	}
	addPart(t.Lost, "extent", "lost")
	addPart(t.Unreadable, "extent", "unreachable")
	addPart(t.Corrupt, "replica", "corrupt")
	addPart(t.Under, "extent", "under-replicated")
	word := a.Paint(tty, cli.StyleGood, "healthy")
	switch {
	case t.Lost+t.Unreadable > 0:
		word = a.Paint(tty, cli.StyleError, "unhealthy")
	case t.Corrupt > 0:
		word = a.Paint(tty, cli.StyleError, "damaged")
	case t.Under > 0:
		word = a.Paint(tty, cli.StyleHint, "degraded")
	}
	of := fmt.Sprintf("%s, %s", cli.Plural(t.Extents, "extent"), cli.FormatSize(t.Bytes))
	if len(parts) > 0 {
		return fmt.Sprintf("%s: %s: %s; %s of %s", word, what, strings.Join(parts, ", "), cli.Plural(t.Good, "good replica"), of)
	}
	if t.wanted == 0 { // fsck reports only extents with problems, and there was none
		return fmt.Sprintf("%s: %s: %s, each with the replicas that it needs", word, what, of)
	}
	return fmt.Sprintf("%s: %s: %s, each with %s", word, what, of, cli.Plural(t.wanted, "good replica"))
}
