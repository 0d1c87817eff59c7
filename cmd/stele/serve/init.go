package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

const initLong = `Create the keys of a new cluster: its certificate authority, the certificate of this
host, which is its first node, the gossip key, and the credential of its first user,
admin. All files are readable by their owner only. "stele serve" with the same data
folders then accepts only connections with a certificate of the cluster.

The authority's key, ca.key, can issue certificates for any node or user. Encrypt it
with --authority-passphrase-file, and keep a backup of the key folder in a safe place.
The credential is written to the file of --out. Commands use it by --credential or
STELE_CREDENTIAL.`

const initExample = `  stele init --data-dir /data1
  stele init --data-dir /data1 --host host1.example --out ~/admin.pem
  stele status --credential ~/admin.pem`

func initCommand(a *cli.App) *cobra.Command {
	var dirs, hosts []string
	keys, out, passphrase := "", "", ""
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Create the keys of a new cluster, with this host as its first node",
		Long:    initLong,
		Example: initExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if keys == "" {
				keys = filepath.Join(dirs[0], certs.FolderName)
			}
			return initialise(a, dirs, keys, passphrase, hosts, out)
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

func initialise(a *cli.App, dirs []string, keys, passphraseFile string, hosts []string, out string) error {
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = cli.Usagef("name another file with --out", "--out: %s exists", out)
		}
		return err
	}
	passphrase, err := certs.ReadPassphrase(passphraseFile)
	if err != nil {
		return err
	}
	first, err := enrol.InitialiseSealed(dirs, keys, passphrase, hosts, time.Now())
	if errors.Is(err, keydir.ErrExists) {
		return cli.WithHint(err, `start the node with "stele serve", which uses the existing keys`)
	}
	if err != nil {
		return err
	}
	if err := pki.WriteCredential(out, first); err != nil {
		return cli.WithHint(err, fmt.Sprintf("the credential is lost: remove %s and retry", keys))
	}
	return printKeys(a, keys, out, first)
}

// printKeys prints the cluster and node of the keys, and the credential of the first user in out.
func printKeys(a *cli.App, keys, out string, first *pki.Credential) error {
	own, err := pki.ReadCredential(keydir.At(keys).NodeFile())
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
	if a.JSON {
		return a.PrintJSON(made)
	}
	_, err = fmt.Fprintf(a.Out, "cluster %s, node %s\nfingerprint %s\nkeys in %s, credential of %s in %s\n",
		made.Cluster, made.Node, made.Fingerprint, cli.EscapeText(keys), first.Peer(), cli.EscapeText(out))
	a.Hint(fmt.Sprintf("start the node with \"stele serve\" and the same folders; use the credential by --credential %s, or STELE_CREDENTIAL", cli.EscapeText(out)))
	return err
}
