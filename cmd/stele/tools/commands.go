package tools

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the offline tools and the commands about the program, in the order of the help.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{checkCommand(a), auditCommand(a), sstableCommand(a), completionCommand(a), manCommand(a), versionCommand(a)}
}
