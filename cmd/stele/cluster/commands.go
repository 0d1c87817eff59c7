package cluster

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands node and raft.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{nodeCommand(a), raftCommand(a)}
}

// DebugCommands returns the command debug.
func DebugCommands(a *cli.App) []*cobra.Command { return []*cobra.Command{debugCommand(a)} }

// StatusCommands returns the commands status, top, requests, trace and logs.
func StatusCommands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{statusCommand(a), topCommand(a), requestsCommand(a), traceCommand(a), logsCommand(a)}
}
