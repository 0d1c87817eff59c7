package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/pki"
)

func (a *app) authorityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authority",
		Short: "Replace the authority that signs the cluster's certificates",
		Long: `Replace the authority that signs the cluster's certificates, for example because a copy
of its key, ca.key, may be in other hands. The cluster serves meanwhile.

"stele authority rotate" makes another authority. When all nodes trust both, which "stele
authority status" shows as the stage sign, users get new credentials by "stele user add",
signed by the new one. Then "stele authority rotate --finish" has nodes renew their own
certificates and trust the new authority alone: credentials and access tokens that were
made before are of no use from then on.`,
		Example: `  stele authority rotate
  stele authority status
  stele authority rotate --finish`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.authorityRotateCommand(), a.authorityStatusCommand())
	return cmd
}

func (a *app) authorityStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how far the replacement of the authority has come",
		Long: `Show how far the replacement of the authority has come: its stage, and which nodes have
yet to do what the stage asks. A node that is away is waited for until it is back, or
removed from the cluster. The stages are

  none    the authority is not being replaced
  trust   nodes come to trust both authorities
  sign    the new one signs certificates of users: they get new ones now
  renew   nodes renew their certificates
  forget  nodes come to trust the new authority alone`,
		Example: `  stele authority status
  stele authority status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var s *client.AuthorityStatus
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				s, err = c.Authority(ctx)
				return err
			})
			if err != nil {
				return err
			}
			return a.printAuthority(s)
		},
	}
}

func (a *app) authorityRotateCommand() *cobra.Command {
	finish, restart, gossipKey, yes := false, false, false, false
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Begin to replace the authority, or finish it",
		Long: `Begin to replace the authority, or finish it. Without a flag the command begins, or shows
how far it is; made again it does no harm.

With --finish credentials of users that the old authority has signed, and access tokens
that were made before, are of no use once all nodes have renewed their certificates. It
is refused before all nodes trust the new authority, and while the credential that the
command itself uses is one of the old one.

With --restart it begins again with another new authority: if the node that made the
first one was lost before others had its key.

With --gossip-key it replaces the key of gossip, and leaves the authority as it is. Nodes
do so by themselves in some seconds, as they do after "stele node remove".`,
		Example: `  stele authority rotate
  stele authority rotate --finish --yes
  stele authority rotate --gossip-key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if finish && restart || gossipKey && (finish || restart) {
				return usagef("", "--finish, --restart and --gossip-key: give one")
			}
			do := (*client.Client).RotateAuthority
			switch {
			case gossipKey:
				do = (*client.Client).RotateGossipKey
			case restart:
				do = (*client.Client).RestartAuthority
			case finish:
				do = a.finishAuthority
				if err := a.confirm(yes, "Make the credentials and access tokens useless that were made before the authority was replaced?"); err != nil {
					return err
				}
			}
			var s *client.AuthorityStatus
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				s, err = do(c, ctx)
				return err
			})
			if err != nil {
				return err
			}
			if gossipKey && !a.json {
				_, err := fmt.Fprintln(a.out, "the nodes replace the key of gossip, which takes some seconds")
				return err
			}
			return a.printAuthority(s)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&finish, "finish", false, "have nodes trust the new authority alone")
	f.BoolVar(&restart, "restart", false, "begin again with another new authority")
	f.BoolVar(&gossipKey, "gossip-key", false, "replace the key of gossip instead of the authority")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// finishAuthority does so unless the command's own credential would be of no use afterwards.
func (a *app) finishAuthority(c *client.Client, ctx context.Context) (*client.AuthorityStatus, error) {
	s, err := c.Authority(ctx)
	if err != nil {
		return nil, err
	}
	if text, err := secretfile.Read(a.credential); err == nil && s.Stage == "sign" && !strings.HasPrefix(strings.TrimSpace(string(text)), "stele-") {
		own, err := pki.ReadCredential(a.credential)
		if err == nil && own.Peer().Kind == pki.Principal && pki.FingerprintOf(own.Signer()).String() != s.New {
			return nil, withHint(errors.New("the credential of this command is one of the old authority, and would be of no use afterwards"),
				fmt.Sprintf(`make another one by "stele user add %s --out FILE", and give it with --credential`, own.Peer().Name))
		}
	}
	return c.FinishAuthority(ctx)
}

// authorityJSON is how far a replacement is, as --json prints it, with the names of the data API.
type authorityJSON struct {
	Stage     string   `json:"stage"`
	Old       string   `json:"old"`
	New       string   `json:"new,omitempty"`
	Waiting   []string `json:"waiting"`
	StartedMS int64    `json:"started_ms,omitempty"`
}

func (a *app) printAuthority(s *client.AuthorityStatus) error {
	if a.json {
		return a.printJSON(authorityJSON{s.Stage, s.Old, s.New, append([]string{}, s.Waiting...), s.StartedMS})
	}
	if s.Stage == "none" {
		_, err := fmt.Fprintf(a.out, "authority %s, which is not being replaced\n", s.Old)
		return err
	}
	waiting := "no node"
	if len(s.Waiting) > 0 {
		waiting = "nodes " + strings.Join(s.Waiting, ", ")
	}
	if _, err := fmt.Fprintf(a.out, "stage %s, waits for %s\nold authority %s\nnew authority %s\n", s.Stage, waiting, s.Old, s.New); err != nil {
		return err
	}
	switch {
	case len(s.Waiting) > 0:
		a.hint(`"stele authority status" shows when the next stage begins; a node that is away for good is taken out by "stele node remove"`)
	case s.Stage == "sign":
		a.hint(`have users get new credentials by "stele user add USER", then "stele authority rotate --finish"`)
	}
	return nil
}
