package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

func (a *app) initCommand() *cobra.Command {
	var dirs, hosts []string
	keys, out, passphrase := "", "", ""
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the keys of a new cluster, with this host as its first node",
		Long: `Create the keys of a new cluster: its certificate authority, the certificate of this
host, which is its first node, the gossip key, and the credential of its first user,
admin. All files are readable by their owner only. "stele serve" with the same data
folders then accepts only connections with a certificate of the cluster.

The authority's key, ca.key, can issue certificates for any node or user. Encrypt it
with --authority-passphrase-file, and keep a backup of the key folder in a safe place.
The credential is written to the file of --out. Commands use it by --credential or
STELE_CREDENTIAL.`,
		Example: `  stele init --data-dir /data1
  stele init --data-dir /data1 --host host1.example --out ~/admin.pem
  stele status --credential ~/admin.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys == "" {
				keys = filepath.Join(dirs[0], certs.FolderName)
			}
			return a.initialise(dirs, keys, passphrase, hosts, out)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&dirs, "data-dir", []string{"/var/lib/stele"}, "data `folder`, as for serve; may be repeated")
	f.StringVar(&keys, "security-dir", "", "`folder` for the keys (default: security in the first data folder)")
	f.StringArrayVar(&hosts, "host", nil, "another `name` or address of this host for its certificate, besides the host name, localhost and the loopback addresses; third-party clients check it; may be repeated")
	f.StringVar(&passphrase, "authority-passphrase-file", "", "`file` with a passphrase that encrypts ca.key; configure the same for serve, on each node")
	f.StringVar(&out, "out", "admin.pem", "`file` for the credential of the first user")
	return cmd
}

func (a *app) initialise(dirs []string, keys, passphraseFile string, hosts []string, out string) error {
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = usagef("name another file with --out", "--out: %s exists", out)
		}
		return err
	}
	passphrase, err := certs.ReadPassphrase(passphraseFile)
	if err != nil {
		return err
	}
	first, err := enrol.InitialiseSealed(dirs, keys, passphrase, hosts, time.Now())
	if errors.Is(err, folder.ErrExists) {
		return withHint(err, `start the node with "stele serve", which uses the existing keys`)
	}
	if err != nil {
		return err
	}
	if err := pki.WriteCredential(out, first); err != nil {
		return withHint(err, fmt.Sprintf("the credential is lost: remove %s and retry", keys))
	}
	own, err := pki.ReadCredential(folder.At(keys).NodeFile())
	if err != nil {
		return err
	}
	made := struct {
		Cluster     string `json:"cluster"`
		Node        string `json:"node"`
		Fingerprint string `json:"fingerprint"`
		Keys        string `json:"keys"`
		Credential  string `json:"credential"`
	}{own.Peer().Cluster, own.Peer().Name, pki.FingerprintOf(own.Trust().Authorities()[0]).String(), keys, out}
	if a.json {
		return a.printJSON(made)
	}
	_, err = fmt.Fprintf(a.out, "cluster %s, node %s\nfingerprint %s\nkeys in %s, credential of %s in %s\n",
		made.Cluster, made.Node, made.Fingerprint, escapeText(keys), first.Peer(), escapeText(out))
	a.hint(fmt.Sprintf("start the node with \"stele serve\" and the same folders; use the credential by --credential %s, or STELE_CREDENTIAL", escapeText(out)))
	return err
}

// setCredential sets the credential of cfg from the file of --credential, if it is set: a certificate with
// its key, or an access token.
func (a *app) setCredential(cfg *client.Config) error {
	return setCredentialFrom(cfg, "--credential", a.credential)
}

// setCredentialFrom is setCredential for the file of another flag. It does nothing if file is empty.
func setCredentialFrom(cfg *client.Config, flag, file string) (err error) {
	if file == "" {
		return nil
	}
	text, err := secretfile.Read(file)
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("stele-")) {
		if cfg.Credential, err = pki.ReadCredential(file); err != nil {
			return withHint(fmt.Errorf("%s: %w", flag, err), `want a file of "stele init" or "stele user add", with mode 0600`)
		}
		return nil
	}
	if cfg.Token, err = token.Parse(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if cfg.Token.Kind() != token.Access {
		return usagef("create an access token by \"stele user add --token\"", "%s: the token in %s is a %s token, want an access token", flag, file, cfg.Token.Kind())
	}
	return nil
}
