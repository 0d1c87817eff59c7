package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// whoamiJSON is the --json form of the caller's identity and grants. Unlike in client.Whoami, the time
// is text, and rights are lists.
type whoamiJSON struct {
	Kind    string      `json:"kind"`
	Name    string      `json:"name,omitempty"`
	Cluster string      `json:"cluster"`
	Shown   string      `json:"shown,omitempty"`
	ID      string      `json:"id,omitempty"`
	Ends    string      `json:"ends,omitempty"`
	Grants  []grantJSON `json:"grants"`
}

func whoamiCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity and rights",
		Long: `Show the user of --credential, when the credential expires, and the user's rights,
including those granted to all users (*).`,
		Example: `  stele whoami --credential ann.pem
  stele whoami --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			me, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.Whoami, error) { return c.Whoami(ctx) })
			if err != nil {
				return err
			}
			return printWhoami(a, me)
		},
	}
}

func printWhoami(a *cli.App, me *client.Whoami) error {
	j := whoamiJSON{Kind: me.Kind, Name: me.Name, Cluster: me.Cluster, Shown: me.Shown, ID: me.ID, Grants: []grantJSON{}}
	if me.EndsMS != 0 {
		j.Ends = time.UnixMilli(me.EndsMS).UTC().Format(time.RFC3339)
	}
	g := cli.NewGrid("RIGHTS", "TABLE", "FAMILY", "AS")
	for _, x := range me.Grants {
		j.Grants = append(j.Grants, grantJSON{x.Principal, strings.Split(x.Rights, ","), x.Table, x.Family, x.View})
		g.Add(x.Rights, tableOf(&x), cli.OrElse(x.Family, "-"), x.Principal)
	}
	if a.JSON {
		return a.PrintJSON(j)
	}
	return printPrincipal(a, me, j.Ends, g)
}

// printPrincipal prints the sentence about the caller, and the grants of a user.
func printPrincipal(a *cli.App, me *client.Whoami, ends string, grants *cli.Grid) error {
	var err error
	switch {
	case me.Kind == api.KindAnonymous:
		_, err = fmt.Fprintf(a.Out, "anonymous: cluster %s has no access control, every client has all rights\n", me.Cluster)
		return err
	case me.Kind == api.KindNode:
		_, err = fmt.Fprintf(a.Out, "node %s of cluster %s, until %s\n", me.Name, me.Cluster, ends)
		return err
	}
	_, err = fmt.Fprintf(a.Out, "user %s of cluster %s, by %s %s, until %s\n", me.Name, me.Cluster, me.Shown, me.ID, cli.OrElse(ends, "it is revoked"))
	if err != nil {
		return err
	}
	if len(me.Grants) == 0 {
		a.Hint("no rights yet: ask an administrator to grant them by \"stele acl grant\"")
		return nil
	}
	fmt.Fprintln(a.Out)
	return a.Print(grants)
}
