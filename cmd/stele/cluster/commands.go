package cluster

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands node, raft, cluster, client and job.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{nodeCommand(a), raftCommand(a), clusterCommand(a), clientCommand(a), jobCommand(a)}
}

// DebugCommands returns the command debug. settings returns the settings of this host without secrets; nil if it has no file of them.
func DebugCommands(a *cli.App, settings func() (any, error)) []*cobra.Command {
	return []*cobra.Command{debugCommand(a, settings)}
}

// StatusCommands returns the commands status, top, requests, trace and logs.
func StatusCommands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{statusCommand(a), topCommand(a), requestsCommand(a), traceCommand(a), logsCommand(a)}
}
