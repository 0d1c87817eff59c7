package blobfs

import (
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/timing"
)

// These types are those of packages members, replog and timing.
type (
	// Member is a node of the cluster, as reported by the membership.
	Member = members.Member
	// Membership is the cluster membership.
	Membership = members.Membership
	// Lists stores small files under this server's lock.
	Lists = replog.Lists
	// Clock is a monotonic clock.
	Clock = timing.Clock
)
