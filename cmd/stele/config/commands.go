package config

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the command config.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{configCommand(a)}
}
