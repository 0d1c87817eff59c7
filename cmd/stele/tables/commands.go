package tables

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands table, family, tablet and keys.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{tableCommand(a), familyCommand(a), tabletCommand(a), keysCommand(a)}
}
