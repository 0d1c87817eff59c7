package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/rpc"
)

// lagMax is the lag of a table that follows another one above which it is a problem.
const lagMax = time.Minute

// FailedReplication is a replication with tables that fail, or lag by more than a minute.
type FailedReplication struct {
	Name   string `json:"name"`
	Tables int    `json:"tables"` // how many
	// One of them, with its error; empty if it only lags.
	Table string `json:"table"`
	Error string `json:"error"`
	LagMS int64  `json:"lag_ms"` // -1: unknown
}

// addReplications adds the replications that fail or lag. Paused ones do neither. Without the right to see them, and from a node of a version without
// them, there are none.
func (x *Cluster) addReplications(a *answers) {
	if !errors.Is(a.followersErr, client.ErrPermission) && !errors.Is(a.followersErr, rpc.CodeUnknownMethod) {
		x.unknown("replications", a.followersErr)
	}
	for i := range a.followers {
		f := FailedReplication{Name: a.followers[i].Name}
		for _, t := range a.followers[i].Tables {
			if t.State == api.ReplicationPaused || t.State != api.ReplicationFailed && t.LagMS <= lagMax.Milliseconds() {
				continue
			}
			if f.Tables++; f.Tables == 1 || f.Error == "" && t.Error != "" {
				f.Table, f.Error, f.LagMS = t.Name, t.Error, t.LagMS
			}
		}
		if f.Tables > 0 {
			x.Replications = append(x.Replications, f)
		}
	}
}

// problem describes the first table.
func (f *FailedReplication) problem() string {
	line := fmt.Sprintf("replication %s, table %s: ", f.Name, f.Table)
	if f.LagMS >= 0 {
		line += fmt.Sprintf("%s behind", text.Uptime(time.Duration(f.LagMS)*time.Millisecond))
	} else {
		line += "not copied whole yet"
	}
	if f.Error != "" {
		line += ": " + f.Error
	}
	if f.Tables > 1 {
		line += fmt.Sprintf("; and %s more", text.Plural(int64(f.Tables-1), "table"))
	}
	return line
}
