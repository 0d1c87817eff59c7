package main

import (
	"os"
	"slices"

	"github.com/steledb/stele/cmd/stele/access"
	"github.com/steledb/stele/cmd/stele/backups"
	"github.com/steledb/stele/cmd/stele/bench"
	"github.com/steledb/stele/cmd/stele/bigtable"
	"github.com/steledb/stele/cmd/stele/blobs"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cluster"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/cmd/stele/locks"
	"github.com/steledb/stele/cmd/stele/replications"
	"github.com/steledb/stele/cmd/stele/rows"
	"github.com/steledb/stele/cmd/stele/serve"
	"github.com/steledb/stele/cmd/stele/tables"
	"github.com/steledb/stele/cmd/stele/tools"
)

func main() { os.Exit(cli.Main(groups)) }

// groups returns all commands, in the order of the help.
func groups(a *cli.App) []cli.Group {
	nodes := slices.Concat(serve.Commands(a), cluster.StatusCommands(a), config.Commands(a), cluster.Commands(a), access.Commands(a))
	return []cli.Group{
		{ID: "node", Title: "Nodes:", Commands: nodes},
		{ID: "schema", Title: "Tables:", Commands: slices.Concat(tables.Commands(a), backups.Commands(a), replications.Commands(a))},
		{ID: "data", Title: "Rows:", Commands: rows.Commands(a)},
		{ID: "blobs", Title: "Blobs:", Commands: blobs.Commands(a)},
		{ID: "locks", Title: "Locks:", Commands: locks.Commands(a)},
		{ID: cli.GroupTools, Title: "Tools:", Commands: slices.Concat(bench.Commands(a), bigtable.Commands(a), cluster.DebugCommands(a, config.OfHost), tools.Commands(a))},
	}
}
