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
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

func (a *app) initCommand() *cobra.Command {
	var dirs, hosts []string
	keys, out, passphrase := "", "", ""
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the keys of a new cluster, with this host as its first node",
		Long: `Make the keys of a new cluster: its authority, the certificate of this host, which is
its first node, the key of gossip, and the credential of its first user, admin. They
are for you alone, and so are their files. "stele serve" with the same data folders
then takes connections of who has a certificate of the cluster, and of nobody else.

The authority's key, ca.key, can make a node or user of anybody: keep a copy of the
folder of keys where it is safe, and encrypt it with --authority-passphrase-file. The
credential is written to the file of --out; verbs take it with --credential or
STELE_CREDENTIAL.`,
		Example: `  stele init --data-dir /data1
  stele init --data-dir /data1 --host host1.example --out ~/admin.pem
  stele status --credential ~/admin.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys == "" {
				keys = filepath.Join(dirs[0], node.SecurityFolder)
			}
			return a.initialise(dirs, keys, passphrase, hosts, out)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&dirs, "data-dir", []string{"/var/lib/stele"}, "`folder` to keep data in, as for serve; may be given several times")
	f.StringVar(&keys, "security-dir", "", "`folder` for the keys (default: security in the first data folder)")
	f.StringArrayVar(&hosts, "host", nil, "`name` or address of this host beside its own name, localhost and the loopback addresses, for clients of other makers, which check it; may be given several times")
	f.StringVar(&passphrase, "authority-passphrase-file", "", "`file` with a passphrase that encrypts ca.key; give serve the same, on each node")
	f.StringVar(&out, "out", "admin.pem", "`file` for the credential of the first user")
	return cmd
}

func (a *app) initialise(dirs []string, keys, passphraseFile string, hosts []string, out string) error {
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = usagef("name another one with --out", "--out: %s is there already", out)
		}
		return err
	}
	passphrase, err := node.ReadPassphrase(passphraseFile)
	if err != nil {
		return err
	}
	first, err := node.InitialiseSealed(dirs, keys, passphrase, hosts, time.Now())
	if errors.Is(err, folder.ErrExists) {
		return withHint(err, `"stele serve" uses them as they are`)
	}
	if err != nil {
		return err
	}
	if err := pki.WriteCredential(out, first); err != nil {
		return withHint(err, fmt.Sprintf("the credential is lost: move %s away and run this again", keys))
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
	a.hint(fmt.Sprintf("start the node with \"stele serve\" and the same folders; verbs take --credential %s, or STELE_CREDENTIAL", escapeText(out)))
	return err
}

// identify has a client show to nodes what is in the file of --credential, if one is given: a
// certificate with its key, or an access token.
func (a *app) identify(cfg *client.Config) error {
	return identifyBy(cfg, "--credential", a.credential)
}

// identifyBy does so with the file of a flag.
func identifyBy(cfg *client.Config, flag, file string) (err error) {
	if file == "" {
		return nil
	}
	text, err := secretfile.Read(file)
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("stele-")) {
		if cfg.Credential, err = pki.ReadCredential(file); err != nil {
			return withHint(fmt.Errorf("%s: %w", flag, err), `"stele init" makes one; it must be for you alone: chmod 600`)
		}
		return nil
	}
	if cfg.Token, err = token.Parse(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if cfg.Token.Kind() != token.Access {
		return usagef("\"stele user add --token\" makes an access token", "%s: the token in %s is for a %s, and not for access", flag, file, cfg.Token.Kind())
	}
	return nil
}
