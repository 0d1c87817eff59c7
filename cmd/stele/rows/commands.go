package rows

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands of rows, in the order of the help.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{putCommand(a), getCommand(a), scanCommand(a), countCommand(a), deleteCommand(a), incrCommand(a), addCommand(a), casCommand(a), importCommand(a), exportCommand(a), watchCommand(a), loadCommand(a)}
}
