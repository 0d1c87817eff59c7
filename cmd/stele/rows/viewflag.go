package rows

import (
	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

// viewFlag is the flag --view: the view of the table that the command uses.
type viewFlag string

func (v *viewFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(v), "view", "", "read and change only what this `view` of the table has: see stele table view")
}

// of returns a table, confined to the view if one is given.
func (v viewFlag) of(c *client.Client, name string) *client.Table {
	if v == "" {
		return c.Table(name)
	}
	return c.Table(name).View(string(v))
}
