package serve

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands serve and init.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{serveCommand(a), initCommand(a)}
}
