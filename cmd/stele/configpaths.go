package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	}
	if c.securityDir() != "" {
		c.checkKeys()
	}
}

// checkKeys checks that the node has keys, or can get them.
func (c *configuration) checkKeys() {
	tokenFile := c.text("token_file")
	switch keys := c.securityDir(); {
	case !isAbsent(folder.At(keys).NodeFile()): // it needs no token
	case tokenFile == "":
		c.illTogether("security_dir", usagef(`"stele init" makes the keys of a new cluster, and --join with --token-file has this host join one`,
			"security_dir (%s): %s has no node.pem, the key and certificate of a node", c.origin["security_dir"], keys))
	case isAbsent(tokenFile):
		c.ill("token_file", usagef(`"stele token create" makes one`, "%s is not there, and this host has no keys", tokenFile))
	case len(c.join()) == 0:
		c.illTogether("token_file", usagef("give one with --join", "token_file (%s): there is no node to join by the token", c.origin["token_file"]))
	}
	if file := c.text("authority_passphrase_file"); file != "" && isAbsent(file) {
		c.ill("authority_passphrase_file", usagef("", "%s is not there", file))
	}
}

// credentials is where systemd puts the credentials of a service, which nobody else sees.
const credentials = "/run/credentials/"

// isAbsent reports whether it is certain that the node will find no file of that name.
func isAbsent(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(name, credentials)
}
