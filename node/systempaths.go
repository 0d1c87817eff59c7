package node

import (
	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/appprofiles"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/registry"
	"github.com/steledb/stele/node/replication"
	"github.com/steledb/stele/node/schemabundles"
	"github.com/steledb/stele/node/stages"
)

// systemPaths are the paths that nodes use for themselves in the lock service.
var systemPaths = []string{
	namespace.ClusterPath, namespace.IDsPath, master.LockPath, namespace.NodesDir, namespace.ServersDir, namespace.RemovedDir, metadata.RootPath, namespace.TablesDir, namespace.RecoveryDir, namespace.BlobsDir, namespace.LogsDir,
	gc.StatePath, namespace.ACLDir, namespace.SecurityDir, stages.Dir, quota.Dir, backup.Dir, backup.SchedulesDir, replication.Dir, replication.StateDir, registry.Dir, appprofiles.Dir, schemabundles.Dir,
}
