// Package remote opens clients of other clusters, with addresses and credentials that are kept in the lock service: for replications and for the
// registry of clusters. The paper has no such part.
//
// It starts no goroutines; those of a client end with its Close.
package remote

import (
	"bytes"
	"context"
	"strings"
	"unicode"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Text returns a text of another cluster in at most so many bytes, without control characters: it is shown on terminals of this one.
func Text(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s[:min(len(s), most)])
	return strings.ToValidUTF8(s[:min(len(s), most)], "") // control characters, and bytes that are not UTF-8, may have become longer
}

// tokenPrefix begins an access token. Other credentials are certificates with their keys, in PEM.
const tokenPrefix = "stele-"

// Open returns a client of the cluster of the nodes at addrs. secret is an access token, a certificate with its key, or empty for an open cluster on
// this machine; cfg has neither. ctx is only for the first connection. Errors: a bad request for a bad credential, and those of client.Open.
func Open(ctx context.Context, addrs []string, secret []byte, cfg client.Config) (*client.Client, error) {
	if len(secret) > 0 {
		var err error
		if bytes.HasPrefix(bytes.TrimSpace(secret), []byte(tokenPrefix)) {
			cfg.Token, err = token.Parse(strings.TrimSpace(string(secret)))
		} else {
			cfg.Credential, err = pki.ParseCredential(secret)
		}
		if err != nil {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "the credential for the other cluster: %v", err)
		}
	}
	return client.Open(ctx, strings.Join(addrs, ","), cfg)
}
