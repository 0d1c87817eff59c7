package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/pki"
)

func authorityCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authority",
		Short: "Show or replace the authority that signs the cluster's certificates",
		Long: `Replace the authority that signs the cluster's certificates, for example because its
key, ca.key, may have leaked. The cluster serves requests meanwhile.

"stele authority rotate" creates a new authority. When all nodes trust both, "stele
authority status" shows the stage sign. Then issue new credentials to users by "stele
user add"; the new authority signs them. "stele authority rotate --finish" makes nodes
renew their own certificates and trust only the new authority. It invalidates
credentials and access tokens that were issued before the rotation.

"stele authority show" prints the authority's certificate, for programs that connect by
TLS.`,
		Example: `  stele authority show > ca.pem
  stele authority rotate
  stele authority status
  stele authority rotate --finish`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(authorityRotateCommand(a), authorityStatusCommand(a), authorityShowCommand(a))
	return cmd
}

func authorityShowCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the authority's certificate",
		Long: `Print the certificate of the authority that signs the cluster's certificates, as PEM.
Programs need it to connect by TLS, such as clients of Google's Cloud Bigtable. It is not
secret. During a rotation there may be two.`,
		Example: `  stele authority show > ca.pem
  stele authority show --credential loader.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.Within(cmd, cli.DefaultTimeout)
			defer cancel()
			addrs, err := cli.WithPorts(a.Addr)
			if err != nil {
				return err
			}
			var cfg client.Config
			if err := a.SetCredential(&cfg); err != nil {
				return err
			}
			trust, err := cfg.Authorities(ctx, strings.Split(addrs, ",")[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"certificates": string(trust.PEM())})
			}
			_, err = a.Out.Write(trust.PEM())
			return err
		},
	}
}

func authorityStatusCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the progress of an authority rotation",
		Long: `Show the stage of an authority rotation, and the nodes that have not completed it. A
stage waits for nodes that are down until they are back or removed from the cluster. The
stages:

  none    the authority is not being replaced
  trust   nodes start trusting both authorities
  sign    the new authority signs certificates of users: issue new ones now
  renew   nodes renew their certificates
  forget  nodes stop trusting the old authority`,
		Example: `  stele authority status
  stele authority status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.AuthorityStatus, error) {
				return c.Authority().Status(ctx)
			})
			if err != nil {
				return err
			}
			return printAuthority(a, s)
		},
	}
}

const authorityRotateLong = `Start an authority rotation, or show its progress if one is in progress. The command may
be repeated.

--finish ends the rotation. Credentials that the old authority signed, and access tokens
issued before the rotation, become invalid once all nodes have renewed their
certificates. It is rejected before all nodes trust the new authority, and while this
command's own credential is signed by the old one.

--restart starts over with another new authority. Use it if the node that created the
first one was lost before other nodes had its key.

--gossip-key replaces the gossip key and leaves the authority unchanged. Nodes switch
within seconds, as they do after "stele node remove".`

const authorityRotateExample = `  stele authority rotate
  stele authority rotate --finish --yes
  stele authority rotate --gossip-key`

func authorityRotateCommand(a *cli.App) *cobra.Command {
	finish, restart, gossipKey, yes := false, false, false, false
	cmd := &cobra.Command{
		Use:     "rotate",
		Short:   "Start or finish an authority rotation",
		Long:    authorityRotateLong,
		Example: authorityRotateExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if finish && restart || gossipKey && (finish || restart) {
				return cli.Usagef("", "--finish, --restart and --gossip-key exclude each other")
			}
			do := client.Authority.Rotate
			switch {
			case gossipKey:
				do = client.Authority.RotateGossipKey
			case restart:
				do = client.Authority.Restart
			case finish:
				do = func(authority client.Authority, ctx context.Context) (*client.AuthorityStatus, error) {
					return finishAuthority(ctx, a, authority)
				}
				if err := a.Confirm(yes, "Invalidate all credentials and access tokens that were issued before the rotation?"); err != nil {
					return err
				}
			}
			s, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.AuthorityStatus, error) {
				return do(c.Authority(), ctx)
			})
			if err != nil {
				return err
			}
			if gossipKey && !a.JSON {
				_, err := fmt.Fprintln(a.Out, "the nodes are replacing the gossip key, which takes a few seconds")
				return err
			}
			return printAuthority(a, s)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&finish, "finish", false, "make nodes trust only the new authority")
	f.BoolVar(&restart, "restart", false, "start over with another new authority")
	f.BoolVar(&gossipKey, "gossip-key", false, "replace the gossip key instead of the authority")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// finishAuthority finishes the rotation. It returns an error if that would invalidate this command's
// own credential.
func finishAuthority(ctx context.Context, a *cli.App, authority client.Authority) (*client.AuthorityStatus, error) {
	s, err := authority.Status(ctx)
	if err != nil {
		return nil, err
	}
	if text, err := secretfile.Read(a.Credential); err == nil && s.Stage == "sign" && !strings.HasPrefix(strings.TrimSpace(string(text)), "stele-") {
		own, err := pki.ReadCredential(a.Credential)
		if err == nil && own.Peer().Kind == pki.Principal && pki.FingerprintOf(own.Signer()).String() != s.New {
			return nil, cli.WithHint(errors.New("the credential of this command is signed by the old authority, and would become invalid"),
				fmt.Sprintf(`issue another one by "stele user add %s --out FILE", and pass it with --credential`, own.Peer().Name))
		}
	}
	return authority.Finish(ctx)
}

func printAuthority(a *cli.App, s *client.AuthorityStatus) error {
	if a.JSON {
		return a.PrintJSON(s)
	}
	if s.Stage == "none" {
		_, err := fmt.Fprintf(a.Out, "authority %s, which is not being replaced\n", s.Old)
		return err
	}
	waiting := "no node"
	if len(s.Waiting) > 0 {
		waiting = "nodes " + strings.Join(s.Waiting, ", ")
	}
	if _, err := fmt.Fprintf(a.Out, "stage %s, waiting for %s\nold authority %s\nnew authority %s\n", s.Stage, waiting, s.Old, s.New); err != nil {
		return err
	}
	switch {
	case len(s.Waiting) > 0:
		a.Hint(`watch "stele authority status" for the next stage; remove a node that is down for good by "stele node remove"`)
	case s.Stage == "sign":
		a.Hint(`issue new credentials to users by "stele user add USER", then run "stele authority rotate --finish"`)
	}
	return nil
}
