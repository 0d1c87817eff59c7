package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

func userCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, list, disable and remove users, and revoke their credentials",
		Long: `Add, list, disable and remove the users of a cluster with certificates. Users
authenticate by a certificate or an access token, which commands read from the file of
--credential; the file must have mode 0600. Rights are granted by "stele acl".`,
		Example: `  stele user add ann --out ann.pem
  stele user add loader --token --ttl 30d --out loader.token
  stele user revoke ann`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(userAddCommand(a), userListCommand(a), userRevokeCommand(a), userDisableCommand(a, true), userDisableCommand(a, false), userRemoveCommand(a))
	return cmd
}

// checkNew returns an error if the file exists or cannot be created.
func checkNew(out string) error {
	if _, err := os.Lstat(out); err == nil {
		return cli.Usagef("name another file with --out", "--out: %s exists", out)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".stele-*")
	if err != nil {
		return cli.Usagef("name a file in a folder that exists and that you may write to", "--out: %s cannot be created: %w", out, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// newCredential is the result of "user add".
type newCredential struct {
	User  string `json:"user"`
	New   bool   `json:"new"`
	File  string `json:"file,omitempty"`
	Token string `json:"token,omitempty"`
	ID    string `json:"id,omitempty"`
	Ends  string `json:"ends,omitempty"`
}

const userAddLong = `Create a credential for a user, and the user if it does not exist. A new user has no
rights: see "stele acl grant". The credential is a certificate with its key, which is
generated locally and written only to the file. With --token it is an access token, for
programs that cannot use certificates. The token is printed once; the cluster stores
only its hash.

A certificate expires after a year and a token after 90 days, unless --ttl is given. A
user can have several credentials: create the next one before the old one expires.`

const userAddExample = `  stele user add ann --out ann.pem
  stele user add loader --token --ttl 30d --out loader.token`

func userAddCommand(a *cli.App) *cobra.Command {
	var ttl time.Duration
	out, comment, isToken, noEnd := "", "", false, false
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Create a user, or another credential for an existing one",
		Long:    userAddLong,
		Example: userAddExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if noEnd && (!isToken || ttl != 0) {
				return cli.Usagef("", "--no-end needs --token, and excludes --ttl")
			}
			if noEnd {
				ttl = client.NoEnd
			}
			if out == "" && !isToken {
				out = args[0] + ".pem"
			}
			if err := pki.CheckName("name of a user", args[0]); err != nil {
				return cli.Usagef("", "%v", err)
			}
			if out != "" { // check before creating a credential that cannot be written
				if err := checkNew(out); err != nil {
					return err
				}
			}
			made := newCredential{User: args[0], File: out}
			err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if isToken {
					return addToken(ctx, c, &made, ttl, comment)
				}
				return addCredential(ctx, c, &made, ttl)
			})
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(made)
			}
			if made.Token != "" {
				if _, err := fmt.Fprintln(a.Out, made.Token); err != nil {
					return err
				}
			}
			a.Notef("credential of user %s%s, until %s", made.User, in(made.File), cli.OrElse(made.Ends, "it is revoked"))
			if made.New {
				a.Hint(fmt.Sprintf("no rights yet: \"stele acl grant %s RIGHTS TABLE\"", made.User))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&isToken, "token", false, "create an access token instead of a certificate")
	f.Var((*cli.PositiveDurationFlag)(&ttl), "ttl", "`duration` until the credential expires (default: a year; 90d for a token)")
	f.BoolVar(&noEnd, "no-end", false, "create a token that does not expire")
	f.StringVar(&out, "out", "", "write the credential to `file`, with mode 0600 (default: NAME.pem; a token is printed)")
	f.StringVar(&comment, "comment", "", "comment `text` to store with a token")
	return cmd
}

func in(file string) string {
	if file == "" {
		return ""
	}
	return " in " + cli.EscapeText(file)
}

func addCredential(ctx context.Context, c *client.Client, made *newCredential, ttl time.Duration) error {
	credential, isNew, err := c.Users().Add(ctx, made.User, ttl)
	if err != nil {
		return err
	}
	made.New, made.Ends = isNew, credential.Ends().UTC().Format(time.RFC3339)
	return cli.WithHint(pki.WriteCredential(made.File, credential), fmt.Sprintf("the user exists, and the credential is lost: repeat the command with another --out, or remove the user by \"stele user remove %s\"", made.User))
}

func addToken(ctx context.Context, c *client.Client, made *newCredential, ttl time.Duration, comment string) error {
	t, isNew, err := c.Users().AddToken(ctx, made.User, ttl, comment)
	if err != nil {
		return err
	}
	made.New, made.ID, made.Token = isNew, t.ID().String(), t.Reveal()
	if !t.Ends().IsZero() {
		made.Ends = t.Ends().Format(time.RFC3339)
	}
	if made.File == "" {
		return nil
	}
	made.Token = ""
	if err := secretfile.Write(made.File, []byte(t.Reveal()+"\n")); err != nil {
		return cli.WithHint(err, fmt.Sprintf("the token is lost: revoke it by \"stele user revoke %s --token %s\", and create another one", made.User, made.ID))
	}
	return nil
}

// userJSON is the --json form of a user. Unlike in client.UserInfo, times are text.
type userJSON struct {
	Name     string      `json:"name"`
	Created  string      `json:"created"`
	Disabled bool        `json:"disabled"`
	Tokens   []userToken `json:"tokens"`
}

type userToken struct {
	ID      string `json:"id"`
	Created string `json:"created"`
	Ends    string `json:"ends,omitempty"`
	Comment string `json:"comment,omitempty"`
}

const userListLong = `List the users of the cluster and the ids of their access tokens. The cluster does not
store certificates, so they are not listed.`

const userListExample = `  stele user list
  stele user list --json`

func userListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the users and their access tokens",
		Long:    userListLong,
		Example: userListExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.UserInfo, error) { return c.Users().List(ctx) })
			if err != nil {
				return err
			}
			return printUsers(a, all)
		},
	}
}

// printUsers prints a row for each user, with the ids of their tokens.
func printUsers(a *cli.App, all []client.UserInfo) error {
	moment := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	g := cli.NewGrid("USER", "STATE", "CREATED", "TOKENS")
	for i := range all {
		u := &all[i]
		j := userJSON{Name: u.Name, Created: moment(u.CreatedMS), Disabled: u.Disabled, Tokens: []userToken{}}
		var ids []string
		for _, t := range u.Tokens {
			x := userToken{ID: t.ID, Created: moment(t.CreatedMS), Comment: t.Comment}
			if t.EndsMS != 0 {
				x.Ends = moment(t.EndsMS)
			}
			j.Tokens, ids = append(j.Tokens, x), append(ids, t.ID)
		}
		if a.JSON {
			if err := a.PrintJSON(j); err != nil {
				return err
			}
			continue
		}
		state := "enabled"
		if u.Disabled {
			state = "disabled"
		}
		g.Add(j.Name, state, j.Created, cli.OrElse(strings.Join(ids, " "), "-"))
	}
	return a.Print(g)
}

const userRevokeLong = `Revoke all certificates and tokens of a user, or one token, or one certificate. The user
keeps all rights; credentials created later have them. When the command returns, no node
serves a request with a revoked credential. If the outcome is unknown, retry.

--certificate takes the file of a certificate, or its serial number in hexadecimal, as
printed by "stele whoami" and "openssl x509 -serial". It cannot be that of --credential.`

const userRevokeExample = `  stele user revoke ann --yes
  stele user revoke loader --token 0102030405060708
  stele user revoke ann --certificate ann.pem`

func userRevokeCommand(a *cli.App) *cobra.Command {
	id, certificate, yes := "", "", false
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Revoke the credentials of a user",
		Long:    userRevokeLong,
		Example: userRevokeExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if id != "" && certificate != "" {
				return cli.Usagef("use one of them", "--token and --certificate are both given")
			}
			serial, err := serialOf(args[0], certificate)
			if err != nil {
				return err
			}
			what := "all credentials"
			if id != "" {
				what = "token " + id
			} else if serial != "" {
				what = "certificate " + serial
			}
			if err := a.Confirm(yes, fmt.Sprintf("Revoke %s of user %s? This cannot be undone.", cli.EscapeText(what), cli.EscapeText(args[0]))); err != nil {
				return err
			}
			err = a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				switch {
				case id != "":
					return c.Users().RevokeToken(ctx, args[0], id)
				case serial != "":
					return c.Users().RevokeCertificate(ctx, args[0], serial)
				}
				return c.Users().Revoke(ctx, args[0])
			})
			var refused *client.TokenRefusedError
			if errors.As(err, &refused) && refused.Reason == client.TokenUnknown {
				return cli.NotFoundf(`"stele user list" shows the users with the ids of their tokens`, "%v", refused)
			}
			if err != nil {
				return err
			}
			a.Notef("revoked %s of user %s", what, args[0])
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().StringVar(&id, "token", "", "revoke only the token with this `id`")
	cmd.Flags().StringVar(&certificate, "certificate", "", "revoke only the certificate with this `file` or serial number")
	return cmd
}

// serialOf returns the serial number of a user's certificate, which is given as a file or as the
// number.
func serialOf(user, certificate string) (string, error) {
	if certificate == "" {
		return "", nil
	}
	if _, err := os.Lstat(certificate); errors.Is(err, fs.ErrNotExist) {
		serial := strings.ToLower(strings.ReplaceAll(certificate, ":", ""))
		if err := acl.CheckSerial(serial); err != nil {
			return "", cli.Usagef("", "--certificate: %q is neither a file nor a serial number: %v", certificate, err)
		}
		return strings.TrimLeft(serial, "0"), nil
	}
	c, err := pki.ReadCredential(certificate)
	if err != nil {
		return "", fmt.Errorf("--certificate: %w", err)
	}
	if p := c.Peer(); p.Kind != pki.Principal || p.Name != user {
		return "", cli.Usagef("", "--certificate: %s belongs to %s, not to user %s", certificate, p, user)
	}
	return c.Peer().Serial, nil
}

func userDisableCommand(a *cli.App, disable bool) *cobra.Command {
	do := client.Users.Enable
	cmd := &cobra.Command{
		Use:     "enable NAME",
		Short:   "Enable a disabled user",
		Long:    `Enable a disabled user, with the same credentials and rights as before.`,
		Example: `  stele user enable ann`,
		Args:    cobra.ExactArgs(1),
	}
	if disable {
		do = client.Users.Disable
		cmd.Use, cmd.Short = "disable NAME", "Disable a user"
		cmd.Long = `Disable a user until "stele user enable". Credentials and rights are kept, but have no
effect meanwhile. When the command returns, no node serves a request of that user. If
the outcome is unknown, retry.`
		cmd.Example = `  stele user disable ann`
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return do(c.Users(), ctx, args[0]) }); err != nil {
			return err
		}
		if disable {
			a.Notef("disabled user %s", args[0])
		} else {
			a.Notef("enabled user %s", args[0])
		}
		return nil
	}
	return cmd
}

func userRemoveCommand(a *cli.App) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove a user with all credentials and rights",
		Long: `Remove a user with all credentials and rights. When the command returns, no node serves
a request of that user. A user of that name who is added later starts without rights.`,
		Example: `  stele user remove ann`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(yes, "Remove user "+cli.EscapeText(args[0])+" with all credentials and rights?"); err != nil {
				return err
			}
			if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.Users().Remove(ctx, args[0]) }); err != nil {
				return err
			}
			a.Notef("removed user %s", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
