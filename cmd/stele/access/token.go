package access

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/secretfile"
)

func tokenCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens for hosts to join the cluster",
		Long: `Create, list and revoke tokens by which hosts join a cluster with certificates. A token
allows its holder to add hosts to the cluster until it is used up or expires: keep it
secret like a password. It is printed once; the cluster stores only its hash.`,
		Example: `  stele token create --out token
  stele token list
  stele token revoke 0102030405060708`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(tokenCreateCommand(a), tokenListCommand(a), tokenRevokeCommand(a))
	return cmd
}

// tokenJSON is the --json form of a token. Unlike in client.TokenInfo, times are text.
type tokenJSON struct {
	Token   string   `json:"token,omitempty"`
	ID      string   `json:"id"`
	Kind    string   `json:"kind"`
	Created string   `json:"created"`
	Ends    string   `json:"ends,omitempty"`
	Uses    int64    `json:"uses"`
	UsedBy  []string `json:"used_by"`
	Node    string   `json:"node,omitempty"`
}

func tokenOf(i *client.TokenInfo) tokenJSON {
	moment := func(ms int64) string {
		if ms == 0 {
			return ""
		}
		return time.UnixMilli(ms).UTC().Format(time.RFC3339)
	}
	return tokenJSON{ID: i.ID, Kind: i.Kind, Created: moment(i.CreatedMS), Ends: moment(i.EndsMS), Uses: i.Uses, UsedBy: append([]string{}, i.UsedBy...), Node: i.Node}
}

const tokenCreateLong = `Create a token by which a host joins the cluster, and print it once. On the host, run:

  stele serve --data-dir DIR --join ADDR --token-file FILE

The token identifies the cluster; the host sends it to no other cluster. Its file must
have mode 0600, which --out sets. With --node the token is only for that node, whose
certificate expired while it was down; the node keeps its id and data.`

const tokenCreateExample = `  stele token create --out token
  stele token create --uses 3 --ttl 24h --out token
  stele token create --node n3`

func tokenCreateCommand(a *cli.App) *cobra.Command {
	r := client.TokenRequest{Kind: api.TokenJoin}
	out := ""
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Create a token for a host to join the cluster",
		Long:    tokenCreateLong,
		Example: tokenCreateExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTokenRequest(&r, out); err != nil {
				return err
			}
			made, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.CreatedToken, error) {
				return c.JoinTokens().Create(ctx, r)
			})
			if err != nil {
				return err
			}
			return printToken(a, made, out)
		},
	}
	f := cmd.Flags()
	f.Var((*cli.PositiveDurationFlag)(&r.TTL), "ttl", "`duration` until the token expires (default 1h; at most 30d)")
	f.Int64Var(&r.Uses, "uses", 1, "`number` of hosts that may join with the token")
	f.StringVar(&r.Node, "node", "", "name or id of the `node` with an expired certificate that the token is for")
	f.StringVar(&out, "out", "", "write the token to `file`, with mode 0600, instead of printing it")
	return cmd
}

// checkTokenRequest checks a request before it creates a token that cannot be written to out.
func checkTokenRequest(r *client.TokenRequest, out string) error {
	if r.Uses < 1 {
		return cli.Usagef("", "--uses is %d, must be at least 1", r.Uses)
	}
	if out == "" {
		return nil
	}
	return checkNew(out)
}

func printToken(a *cli.App, made *client.CreatedToken, out string) error {
	if out != "" {
		if err := secretfile.Write(out, []byte(made.Text+"\n")); err != nil {
			return cli.WithHint(err, fmt.Sprintf("the token is lost: revoke it by \"stele token revoke %s\", and create another one", made.Info.ID))
		}
		made.Text = ""
	}
	if a.JSON {
		j := tokenOf(&made.Info)
		j.Token = made.Text
		return a.PrintJSON(j)
	}
	if made.Text != "" {
		if _, err := fmt.Fprintln(a.Out, made.Text); err != nil {
			return err
		}
	}
	a.Notef("token %s, for %s until %s", made.Info.ID, tokenFor(&made.Info), time.UnixMilli(made.Info.EndsMS).UTC().Format(time.RFC3339))
	return nil
}

// tokenFor returns the node or the number of hosts that a token is for.
func tokenFor(i *client.TokenInfo) string {
	switch {
	case i.Node != "":
		return "node " + i.Node
	case i.Uses == 1:
		return "one host"
	}
	return strconv.FormatInt(i.Uses, 10) + " hosts"
}

const tokenListLong = `List the ids of tokens and the nodes that used them. Expired tokens are listed for a
week. The tokens themselves are not stored.`

const tokenListExample = `  stele token list
  stele token list --json`

func tokenListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tokens",
		Long:    tokenListLong,
		Example: tokenListExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.TokenInfo, error) {
				return c.JoinTokens().List(ctx)
			})
			if err != nil {
				return err
			}
			g := cli.NewGrid("ID", "KIND", "LEFT", "ENDS", "NODE", "USED BY")
			for i := range all {
				j := tokenOf(&all[i])
				if a.JSON {
					if err := a.PrintJSON(j); err != nil {
						return err
					}
					continue
				}
				g.Add(j.ID, j.Kind, left(&all[i], time.Now()), cli.OrElse(j.Ends, "never"), cli.OrElse(j.Node, "-"), cli.OrElse(strings.Join(j.UsedBy, " "), "-"))
			}
			return a.Print(g)
		},
	}
}

// left returns how many hosts may still join with a token.
func left(t *client.TokenInfo, now time.Time) string {
	if t.EndsMS != 0 && t.EndsMS <= now.UnixMilli() {
		return "expired"
	}
	return strconv.FormatInt(t.Uses, 10)
}

func tokenRevokeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Aliases: []string{"rm"},
		Short:   "Revoke a token",
		Long: `Revoke a token by its id. Nodes that have joined with it stay in the cluster: remove
them by "stele node remove".`,
		Example: `  stele token revoke 0102030405060708`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.JoinTokens().Revoke(ctx, args[0]) })
			var refused *client.TokenRefusedError
			if errors.As(err, &refused) && refused.Reason == client.TokenUnknown {
				return cli.NotFoundf(`"stele token list" shows the tokens with their ids`, "%v", err)
			}
			if err != nil {
				return err
			}
			a.Notef("revoked token %s", args[0])
			return nil
		},
	}
}
