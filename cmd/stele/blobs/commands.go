package blobs

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Commands returns the command blob.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{blobCommand(a)}
}
