package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/secretfile"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens by which hosts join the cluster",
		Long: `Make, list and revoke the tokens by which hosts join a cluster with certificates. Who
has one may add a host to the cluster, until it is used up or has ended: give it away
as you would a password. It is shown once, and only its hash is kept.`,
		Example: `  stele token create --out token
  stele token list
  stele token revoke 0102030405060708`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return cmd
}

// tokenJSON is a token as --json prints it, with the names of the data API.
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

func (a *app) tokenCreateCommand() *cobra.Command {
	r := client.TokenRequest{Kind: api.TokenJoin}
	out := ""
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token by which a host joins the cluster",
		Long: `Make a token by which a host joins the cluster, and print it, once. On the host:

  stele serve --data-dir DIR --join ADDR --token-file FILE

The token names the cluster: the host gives it to no other. A file of it must be for its
owner alone, as --out makes it. With --node it is for that node alone, whose certificate
has ended while it was off: it keeps its id and data.`,
		Example: `  stele token create --out token
  stele token create --uses 3 --ttl 24h --out token
  stele token create --node n3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Uses < 1 {
				return usagef("", "--uses is %d, must be at least 1", r.Uses)
			}
			if out != "" { // before a token is made that nobody gets
				if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
					if err == nil {
						err = usagef("name another one with --out", "--out: %s is there already", out)
					}
					return err
				}
			}
			if r.Uses < 1 {
				return usagef("", "--uses is %d, must be at least 1", r.Uses)
			}
			var made *client.CreatedToken
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				made, err = c.CreateToken(ctx, r)
				return err
			})
			if err != nil {
				return err
			}
			return a.printToken(made, out)
		},
	}
	f := cmd.Flags()
	f.Var((*positiveDurationFlag)(&r.TTL), "ttl", "`time` for which it can be used (default 1h; at most 30d)")
	f.Int64Var(&r.Uses, "uses", 1, "`number` of hosts that may join with it")
	f.StringVar(&r.Node, "node", "", "name or id of the `node` that it is for, whose certificate has ended")
	f.StringVar(&out, "out", "", "`file` to write it to, for you alone, instead of printing it")
	return cmd
}

func (a *app) printToken(made *client.CreatedToken, out string) error {
	if out != "" {
		if err := secretfile.Write(out, []byte(made.Text+"\n")); err != nil {
			return withHint(err, fmt.Sprintf("the token is lost: \"stele token revoke %s\", and make another one", made.Info.ID))
		}
		made.Text = ""
	}
	if a.json {
		j := tokenOf(&made.Info)
		j.Token = made.Text
		return a.printJSON(j)
	}
	if made.Text != "" {
		if _, err := fmt.Fprintln(a.out, made.Text); err != nil {
			return err
		}
	}
	a.talk("token %s, for %s until %s", made.Info.ID, tokenFor(&made.Info), time.UnixMilli(made.Info.EndsMS).UTC().Format(time.RFC3339))
	return nil
}

// tokenFor says whom a token is for.
func tokenFor(i *client.TokenInfo) string {
	switch {
	case i.Node != "":
		return "node " + i.Node
	case i.Uses == 1:
		return "one host"
	}
	return strconv.FormatInt(i.Uses, 10) + " hosts"
}

func (a *app) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens that there are",
		Long: `List the tokens that there are, and who has used them. Those that have ended are
listed for a week. The tokens themselves are kept nowhere.`,
		Example: `  stele token list
  stele token list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []client.TokenInfo
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				all, err = c.Tokens(ctx)
				return err
			})
			if err != nil {
				return err
			}
			g := newGrid("ID", "KIND", "LEFT", "ENDS", "NODE", "USED BY")
			for i := range all {
				j := tokenOf(&all[i])
				if a.json {
					if err := a.printJSON(j); err != nil {
						return err
					}
					continue
				}
				g.add(j.ID, j.Kind, j.Uses, orElse(j.Ends, "never"), orElse(j.Node, "-"), orElse(strings.Join(j.UsedBy, " "), "-"))
			}
			return a.print(g)
		},
	}
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Aliases: []string{"rm"},
		Short:   "Make a token of no use",
		Long: `Make a token of no use, given by its id. Nodes that have joined with it stay: see
"stele node remove".`,
		Example: `  stele token revoke 0102030405060708`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) error { return c.RevokeToken(ctx, args[0]) })
			var refused *client.TokenRefusedError
			if errors.As(err, &refused) && refused.Reason == client.TokenUnknown {
				return notFoundf(`"stele token list" shows the tokens with their ids`, "%v", err)
			}
			if err != nil {
				return err
			}
			a.talk("token %s is of no use any more", args[0])
			return nil
		},
	}
}
