package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/security/folder"
)

// checkPaths notes what is wrong with the files and folders that a node needs in order to
// start: an error that waiting does not mend.
func (c *configuration) checkPaths() {
	seen := map[string]string{}
	for _, dir := range c.values.Strings("data_dir") {
		whole, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		if other, twice := seen[whole]; twice {
			c.ill("data_dir", usagef("give it once", "%s and %s are one folder", other, dir))
		}
		seen[whole] = dir
		if info, err := os.Stat(dir); err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR) {
			c.ill("data_dir", usagef("", "%s is not a folder", dir))
		}
	}
	if c.securityDir() != "" {
		c.checkKeys()
	}
	file := c.text("encryption_key_file")
	if file != "" && isAbsent(file) {
		c.ill("encryption_key_file", usagef(`a node with encrypted data needs its own key; for a node without data, "openssl rand -hex 32" makes one`, "%s is not there", file))
	}
	if file != "" && c.text("encryption_key_command") != "" {
		c.illTogether("encryption_key_command", usagef("give one of them", "encryption_key_command (%s): encryption_key_file (%s) is given, too", c.origin["encryption_key_command"], c.origin["encryption_key_file"]))
	}
}

// checkKeys checks that the node has keys that it can read, or can get them.
func (c *configuration) checkKeys() {
	passphrase, known := c.checkPassphrase()
	tokenFile := c.text("token_file")
	switch keys := folder.At(c.securityDir()).SealedBy(passphrase); {
	case !isAbsent(keys.NodeFile()): // it needs no token
		if err := keys.Check(); known && err != nil && !errors.Is(err, fs.ErrPermission) {
			c.illTogether("security_dir", usagef("", "read the node's keys, security_dir (%s): %w", c.origin["security_dir"], err))
		}
	case tokenFile == "":
		c.illTogether("security_dir", usagef(`"stele init" makes the keys of a new cluster, and --join with --token-file has this host join one`,
			"security_dir (%s): %s has no node.pem, the key and certificate of a node", c.origin["security_dir"], c.securityDir()))
	case isAbsent(tokenFile):
		c.ill("token_file", usagef(`"stele token create" makes one`, "%s is not there, and this host has no keys", tokenFile))
	case len(c.join()) == 0:
		c.illTogether("token_file", usagef("give one with --join", "token_file (%s): there is no node to join by the token", c.origin["token_file"]))
	default:
		if err := node.CheckTokenFile(tokenFile); isCertain(err) {
			c.ill("token_file", usagef(`"stele token create" makes one`, "%w", err))
		}
	}
}

// checkPassphrase checks and returns the passphrase of the authority's key. known is false if there is one that cannot be read.
func (c *configuration) checkPassphrase() (passphrase string, known bool) {
	file := c.text("authority_passphrase_file")
	if file != "" && isAbsent(file) {
		c.ill("authority_passphrase_file", usagef("", "%s is not there", file))
		return "", false
	}
	passphrase, err := node.ReadPassphrase(file)
	if isCertain(err) {
		c.ill("authority_passphrase_file", usagef("", "%w", err))
	}
	return passphrase, err == nil
}

// isCertain reports whether the node will meet err, too: it may read files that the user of "stele config check" may not, and
// files that are not there yet.
func isCertain(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist)
}

// credentials is where systemd puts the credentials of a service, which nobody else sees.
const credentials = "/run/credentials/"

// isAbsent reports whether it is certain that the node will find no file of that name.
func isAbsent(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(name, credentials)
}
