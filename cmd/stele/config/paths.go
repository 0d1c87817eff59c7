package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/keydir"
)

// CheckPaths adds problems with the files and folders that a node needs to start. It reports only
// errors that a retry would not fix.
func (c *Config) CheckPaths() {
	seen := map[string]string{}
	for _, dir := range c.List("data_dir") {
		whole, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		if other, twice := seen[whole]; twice {
			c.addProblem("data_dir", cli.Usagef("list it once", "%s and %s are the same folder", other, dir))
		}
		seen[whole] = dir
		if info, err := os.Stat(dir); err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR) {
			c.addProblem("data_dir", cli.Usagef("", "%s is not a folder", dir))
		}
	}
	if c.SecurityDir() != "" {
		c.checkKeys()
	}
	file := c.Text("encryption_key_file")
	if file != "" && isAbsent(file) {
		c.addProblem("encryption_key_file", cli.Usagef(`a node with encrypted data needs its own key; for a node without data, create one by "openssl rand -hex 32"`, "%s does not exist", file))
	}
	if file != "" && c.Text("encryption_key_command") != "" {
		c.addConflict("encryption_key_command", cli.Usagef("set only one of them", "encryption_key_command (%s): encryption_key_file (%s) is also set", c.origin["encryption_key_command"], c.origin["encryption_key_file"]))
	}
}

// checkKeys checks that the node has readable keys, or can get keys by a join token.
func (c *Config) checkKeys() {
	passphrase, known := c.checkPassphrase()
	tokenFile := c.Text("token_file")
	switch keys := keydir.At(c.SecurityDir()).SealedBy(passphrase); {
	case !isAbsent(keys.NodeFile()): // it needs no token
		if err := keys.Check(); known && err != nil && !errors.Is(err, fs.ErrPermission) {
			c.addConflict("security_dir", cli.Usagef("", "read the node's keys, security_dir (%s): %w", c.origin["security_dir"], err))
		}
	case tokenFile == "":
		c.addConflict("security_dir", cli.Usagef(`create the keys of a new cluster by "stele init", or join a cluster by --join and --token-file`,
			"security_dir (%s): %s has no node.pem, the key and certificate of a node", c.origin["security_dir"], c.SecurityDir()))
	case isAbsent(tokenFile):
		c.addProblem("token_file", cli.Usagef(`create a token by "stele token create"`, "%s does not exist, and this host has no keys", tokenFile))
	case len(c.join()) == 0:
		c.addConflict("token_file", cli.Usagef("name one with --join", "token_file (%s): a token needs a node to join", c.origin["token_file"]))
	default:
		if err := enrol.CheckTokenFile(tokenFile); isCertain(err) {
			c.addProblem("token_file", cli.Usagef(`create a token by "stele token create"`, "%w", err))
		}
	}
}

// checkPassphrase checks and returns the passphrase of the authority's key; empty if none is set.
// known is false if it is set and cannot be read.
func (c *Config) checkPassphrase() (passphrase string, known bool) {
	file := c.Text("authority_passphrase_file")
	if file != "" && isAbsent(file) {
		c.addProblem("authority_passphrase_file", cli.Usagef("", "%s does not exist", file))
		return "", false
	}
	passphrase, err := certs.ReadPassphrase(file)
	if isCertain(err) {
		c.addProblem("authority_passphrase_file", cli.Usagef("", "%w", err))
	}
	return passphrase, err == nil
}

// isCertain reports whether the node will get err, too. The node may have permissions that the user
// of "stele config check" lacks, and a missing file may be created before it starts.
func isCertain(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist)
}

// credentials is the folder of systemd's service credentials, which only the service can see.
const credentials = "/run/credentials/"

// isAbsent reports whether the file is certainly missing for the node. A service credential may exist
// even if this process cannot see it.
func isAbsent(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(name, credentials)
}
