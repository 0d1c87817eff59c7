package certs

import (
	"fmt"
	"strings"

	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/pki"
)

// FolderName is the name of the directory of a node's keys below its first data directory, unless configured elsewhere.
const FolderName = "security"

// ReadPassphrase reads the passphrase of the authority's key from a file that only its owner may read. An empty name means no
// passphrase.
func ReadPassphrase(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := secretfile.Read(file)
	if err != nil {
		return "", fmt.Errorf("read the passphrase of the authority's key: %w", err)
	}
	p := strings.TrimRight(string(b), "\r\n")
	return p, pki.CheckPassphrase(p)
}
