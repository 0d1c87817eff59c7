package lockserver

import (
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metric"
)

// Collect sends the metrics of the node's Raft group.
func (sv *Service) Collect(m metric.Sender) {
	group := sv.Group()
	m.Gauge("raft_voter", "1 while this node is a server of the Raft group.", metric.Bool(group != nil))
	if group == nil {
		return
	}
	g := group.Stats()
	m.Gauge("raft_leader", "1 while this node leads the Raft group.", metric.Bool(g.Leader))
	m.Gauge("raft_term", "Current Raft term of this node.", float64(g.Term))
	m.Gauge("raft_applied_index", "Index of the last Raft log entry that this node applied.", float64(g.AppliedIndex))
	m.Gauge("raft_files", "Files in the lock service's namespace.", float64(g.Files))
	share := ShareOf(sv.MemoryBytes, authz.OpenClients)
	m.Gauge("lock_users", "Users that hold files, locks or sessions in the lock service.", float64(g.Users))
	m.Gauge("lock_users_bytes", "Memory of the files, locks and sessions of all users in the lock service.", float64(g.UsersBytes))
	m.Gauge("lock_user_bytes_max", "Memory of the files, locks and sessions of the user that holds the most in the lock service.", float64(g.UsersBytesMost))
	m.Gauge("lock_users_limit_bytes", "Limit of the memory of the files, locks and sessions of all users while this node leads; one user may use a quarter.", float64(share.AllBytes))
	m.Gauge("lock_users_sessions", "Open sessions of all users with the lock service.", float64(g.UsersSessions))
	m.Counter("lock_refused_total", "Changes that the lock service rejected on this node, such as those beyond a limit.", float64(g.Refused))
	m.Counter("raft_log_writes_total", "Writes to this node's Raft log.", float64(g.LogWrites))
	m.Counter("raft_log_write_seconds_total", "Time spent on writes to this node's Raft log.", g.LogTime.Seconds())
}
