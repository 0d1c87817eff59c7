package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/steledb/stele/cmd/stele/cli"

	"github.com/spf13/cobra"
)

func main() { os.Exit(mainCode()) }

// mainCode runs the command line and returns the exit code.
func mainCode() int {
	// The first signal cancels the context. Then stop restores the default action, so that a second
	// signal ends a process that hangs.
	ctx, stop := signal.NotifyContext(context.Background(), cli.Signals()...)
	context.AfterFunc(ctx, stop)
	defer stop()
	a := cli.New(os.Stdin, os.Stdout, os.Stderr)
	return a.Run(ctx, groups(a), os.Args[1:])
}

// groups returns all commands, in the order of the help.
func groups(a *cli.App) []cli.Group {
	return []cli.Group{
		{ID: "node", Title: "Nodes:", Commands: []*cobra.Command{
			serveCommand(a), initCommand(a), statusCommand(a), configCommand(a), nodeCommand(a), raftCommand(a),
			tokenCommand(a), authorityCommand(a), userCommand(a), whoamiCommand(a), aclCommand(a), quotaCommand(a), usageCommand(a),
		}},
		{ID: "schema", Title: "Tables:", Commands: []*cobra.Command{tableCommand(a), familyCommand(a), tabletCommand(a)}},
		{ID: "data", Title: "Rows:", Commands: []*cobra.Command{
			putCommand(a), getCommand(a), scanCommand(a), countCommand(a), deleteCommand(a), incrCommand(a), casCommand(a), loadCommand(a),
		}},
		{ID: "blobs", Title: "Blobs:", Commands: []*cobra.Command{blobCommand(a)}},
		{ID: "locks", Title: "Locks:", Commands: []*cobra.Command{lockCommand(a)}},
		{ID: "tools", Title: "Tools:", Commands: []*cobra.Command{
			benchCommand(a), checkCommand(a), auditCommand(a), sstableCommand(a), completionCommand(a), manCommand(a), versionCommand(a),
		}},
	}
}
