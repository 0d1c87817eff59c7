package members

import (
	"context"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

// Member is a node of the cluster, as reported by the membership.
type Member struct {
	ID, Zone      string
	CapacityBytes int64 // of its data folders; its weight in placement
	FreeBytes     int64 // above its reserve; the node is full if this is less than one extent
	Alive         bool
	Since         time.Time // when Alive last changed
	Draining      bool      // draining, or removed
}

// Membership is the cluster membership. It is a hint: a member reported as alive may be dead, and the
// other way round.
type Membership interface {
	// Members returns all nodes, including this one.
	Members() []Member
	// Changed returns a channel that is closed when the result of Members next changes.
	Changed() <-chan struct{}
	// Self is the ID of this node.
	Self() string
	// Peer returns the store of another node. It may dial, and may return before the node has
	// answered. An error means that the node cannot be reached now.
	Peer(ctx context.Context, id string) (api.Peer, error)
}
