package access

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the commands of users, rights and quotas, in the order of the help.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{tokenCommand(a), authorityCommand(a), userCommand(a), whoamiCommand(a), aclCommand(a), quotaCommand(a), usageCommand(a)}
}
