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
	extents, bytes int64
	wanted         int64 // replicas that an extent should have; the maximum over the extents
	good           int64 // replicas
	corrupt        int64 // corrupt replicas
	under          int64 // extents with too few good replicas, but at least one
	lost           int64 // extents without a good replica on any node
	unreadable     int64 // extents whose only good replicas may be on unreachable nodes
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
	t.extents++
	t.bytes += max(x.Bytes, 0)
	t.good += int64(x.Count(api.ReplicaGood))
	t.classify(x)
}

// classify counts the problems of an extent, and returns its state.
func (t *tally) classify(x *client.ExtentInfo) (state string) {
	good, corrupt, unreachable := x.Count(api.ReplicaGood), x.Count(api.ReplicaCorrupt), x.Count(api.ReplicaUnreachable)
	t.wanted = max(t.wanted, x.Wanted)
	t.corrupt += int64(corrupt)
	state = extentGood
	switch {
	case good == 0 && unreachable > 0:
		t.unreadable++
		return extentUnreachable
	case good == 0:
		t.lost++
		return extentLost
	case int64(good) < x.Wanted:
		t.under++
		state = extentUnder
	}
	if corrupt > 0 {
		state = extentDamaged
	}
	return state
}

// tallyJSON is the --json form of a tally.
type tallyJSON struct {
	OK              bool  `json:"ok"`
	Extents         int64 `json:"extents"`
	Bytes           int64 `json:"bytes"`
	Replicas        int64 `json:"replicas"` // good ones
	Corrupt         int64 `json:"rotten_replicas"`
	UnderReplicated int64 `json:"under_replicated"`
	Unreachable     int64 `json:"unreachable"`
	Lost            int64 `json:"lost"`
}

func (t *tally) json() tallyJSON {
	return tallyJSON{t.fault() == nil && t.under == 0, t.extents, t.bytes, t.good, t.corrupt, t.under, t.unreadable, t.lost}
}

// fault returns an error with exitUnhealthy if anything is lost, corrupt or unreachable. Extents
// that are only under-replicated are repaired by the nodes, and are no error.
func (t *tally) fault() error {
	if t.lost+t.unreadable+t.corrupt > 0 {
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
	addPart(t.lost, "extent", "lost")
	addPart(t.unreadable, "extent", "unreachable")
	addPart(t.corrupt, "replica", "corrupt")
	addPart(t.under, "extent", "under-replicated")
	word := a.Paint(tty, cli.StyleGood, "healthy")
	switch {
	case t.lost+t.unreadable > 0:
		word = a.Paint(tty, cli.StyleError, "unhealthy")
	case t.corrupt > 0:
		word = a.Paint(tty, cli.StyleError, "damaged")
	case t.under > 0:
		word = a.Paint(tty, cli.StyleHint, "degraded")
	}
	of := fmt.Sprintf("%s, %s", cli.Plural(t.extents, "extent"), cli.FormatSize(t.bytes))
	if len(parts) > 0 {
		return fmt.Sprintf("%s: %s: %s; %s of %s", word, what, strings.Join(parts, ", "), cli.Plural(t.good, "good replica"), of)
	}
	if t.wanted == 0 { // fsck reports only extents with problems, and there was none
		return fmt.Sprintf("%s: %s: %s, each with the replicas that it needs", word, what, of)
	}
	return fmt.Sprintf("%s: %s: %s, each with %s", word, what, of, cli.Plural(t.wanted, "good replica"))
}
