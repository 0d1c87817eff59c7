package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/text"
)

// clusterCommand returns the command cluster.
func clusterCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Know other clusters, and see their health side by side",
		Long: `Know other clusters, and see their health side by side: here, and on the page
"Clusters" of the console. For tables that follow those of another cluster, see "stele
replication".`,
		Example: `  stele cluster add west --from west1:7106,west2:7106 --token-file token --console https://west1:7108
  stele cluster list
  stele cluster remove west`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(addClusterCommand(a), listClustersCommand(a), removeClusterCommand(a))
	return cmd
}

const addClusterLong = `Add another cluster. The addresses are those of some of its nodes, which the nodes of
this cluster must reach. It must answer.

--token-file is a file with an access token of the other cluster ("stele user add
--token" there), or a certificate with its key. Its user needs the right monitor on
that cluster; with the right read, tablets that are not served are shown as well. The
credential is kept in this cluster's lock service, where its users cannot read it.
Users with the right to monitor this cluster see the health of the other one.`

func addClusterCommand(a *cli.App) *cobra.Command {
	spec, file := client.ClusterSpec{}, ""
	cmd := &cobra.Command{
		Use:   "add NAME --from ADDRESS",
		Short: "Add another cluster",
		Long:  addClusterLong,
		Example: `  stele cluster add west --from west1:7106,west2:7106 --token-file token --console https://west1:7108
  stele cluster add trial --from 127.0.0.1:7206`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if spec.Name = args[0]; len(spec.Addrs) == 0 {
				return cli.Usagef("give addresses of nodes of the cluster", "--from is missing")
			}
			if file != "" {
				if spec.Secret, err = secretfile.Read(file); err != nil {
					return fmt.Errorf("--token-file: %w", err)
				}
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.Clusters().Add(ctx, &spec); err != nil {
					return err
				}
				a.Notef("cluster %s is added: \"stele cluster list\" shows its health", cli.EscapeText(spec.Name))
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&spec.Addrs, "from", nil, "`host:port` of nodes of the cluster, separated by commas")
	f.StringVar(&file, "token-file", "", "`file` with the access token, or the certificate and key, for the cluster")
	f.StringVar(&spec.Console, "console", "", "`URL` of the cluster's console, to which pages link")
	return cmd
}

func listClustersCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List other clusters with their health",
		Long: `List other clusters with their health, as it was in the last ten seconds. A cluster
that does not answer is "unreachable", with the cause. The caller needs the right
monitor on this cluster.`,
		Example: `  stele cluster list
  stele cluster list --json | jq -r 'select(.state != "healthy") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.ClusterInfo, error) {
				return c.Clusters().List(ctx)
			})
			if err != nil {
				return err
			}
			return printClusters(a, all)
		},
	}
}

// printClusters prints clusters, and what is wrong with each.
func printClusters(a *cli.App, all []client.ClusterInfo) error {
	g := cli.NewGrid("CLUSTER", "STATE", "NODES", "TABLETS", "DISK FREE", "VERSION", "CONSOLE")
	var wrong []string
	for i := range all {
		x := &all[i]
		if a.JSON {
			if err := a.PrintJSON(x); err != nil {
				return err
			}
			continue
		}
		nodes, tablets, free := "-", "-", "-"
		if x.State != api.ClusterUnreachable {
			nodes = fmt.Sprintf("%d of %d", x.NodesAlive, x.Nodes)
			if x.Tablets >= 0 {
				tablets = cli.FormatCount(x.Tablets)
			}
			if x.DiskBytes > 0 {
				free = fmt.Sprintf("%s of %s", text.Size(x.DiskFree), text.Size(x.DiskBytes))
			}
		} else {
			wrong = append(wrong, x.Name+": "+x.Sentence)
		}
		for _, p := range x.Problems {
			wrong = append(wrong, x.Name+": "+p)
		}
		g.Add(x.Name, x.State, nodes, tablets, free, cli.OrElse(x.Version, "-"), cli.OrElse(x.Console, "-"))
	}
	if a.JSON {
		return nil
	}
	if err := a.Print(g); err != nil {
		return err
	}
	for _, line := range wrong {
		a.Notef("%s", cli.EscapeText(line))
	}
	return nil
}

func removeClusterCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove another cluster from the list",
		Long: `Remove another cluster from the list, and its credential from this cluster. The other
cluster goes on as before.`,
		Example: `  stele cluster remove west`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.Clusters().Remove(ctx, args[0]); err != nil {
					return err
				}
				a.Notef("cluster %s is removed", cli.EscapeText(args[0]))
				return nil
			})
		},
	}
}
