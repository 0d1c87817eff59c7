package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// SetCredential sets the credential of cfg from the file of --credential, if it is set: a certificate with
// its key, or an access token.
func (a *App) SetCredential(cfg *client.Config) error {
	return SetCredentialFrom(cfg, "--credential", a.Credential)
}

// SetCredentialFrom is SetCredential for the file of another flag. It does nothing if file is empty.
func SetCredentialFrom(cfg *client.Config, flag, file string) (err error) {
	if file == "" {
		return nil
	}
	text, err := secretfile.Read(file)
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("stele-")) {
		if cfg.Credential, err = pki.ReadCredential(file); err != nil {
			return WithHint(fmt.Errorf("%s: %w", flag, err), `want a file of "stele init" or "stele user add", with mode 0600`)
		}
		return nil
	}
	if cfg.Token, err = token.Parse(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if cfg.Token.Kind() != token.Access {
		return Usagef("create an access token by \"stele user add --token\"", "%s: the token in %s is a %s token, want an access token", flag, file, cfg.Token.Kind())
	}
	return nil
}
