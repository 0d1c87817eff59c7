package main

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// faultOfIdentity knows the errors about who somebody is, and what he may do.
func faultOfIdentity(err error) *fault {
	var away *client.UnreachableError
	denied := func(hint, text string, cause error) *fault {
		f := &fault{code: exitDenied, hint: hint}
		if errors.As(err, &away) && text != "" {
			f.err = fmt.Errorf("%s: %s", away.Addr, text)
			if cause != nil {
				f.err = fmt.Errorf("%w: %w", f.err, cause)
			}
		}
		return f
	}
	var peer *pki.PeerError
	var refused *client.TokenRefusedError
	var plain tls.RecordHeaderError
	var unknown *client.IdentityError
	switch {
	case errors.Is(err, node.ErrExpired):
		return denied("", "", nil)
	case errors.As(err, &refused):
		return denied(tokenHint(refused.Reason), "", nil)
	case isTokenFormat(err):
		return denied("", "", nil)
	case errors.Is(err, client.ErrNoCredential):
		return denied(`prove who you are with --credential FILE or STELE_CREDENTIAL: "stele init" makes the first`,
			"the node takes nobody who has not proved who he is", nil)
	case errors.As(err, &peer):
		return denied(peerHint(peer), "the node is not one to talk to", peer)
	case pki.IsAlert(err):
		return denied("the credential may have expired, be of another cluster, or have been revoked; a clock may be wrong",
			"the node does not take the credential", nil)
	case errors.As(err, &plain):
		return denied("leave out --credential and STELE_CREDENTIAL if that is meant",
			"the node has no certificate: it is one of a cluster that is open", nil)
	case errors.As(err, &unknown):
		f := denied("prove who you are with --credential FILE or STELE_CREDENTIAL", "", nil)
		if errors.As(err, &away) {
			f.err = fmt.Errorf("%s does not take the token: %w", away.Addr, unknown)
		}
		return f
	case errors.Is(err, client.ErrUnauthenticated):
		return denied("prove who you are with --credential FILE or STELE_CREDENTIAL", "", nil)
	case errors.Is(err, client.ErrPermission):
		return denied("use the credential of somebody who may, or have him give you the right", "", nil)
	}
	return nil
}

func isTokenFormat(err error) bool {
	var bad *token.FormatError
	return errors.As(err, &bad)
}

// peerHint says what to do about a peer that is not believed.
func peerHint(e *pki.PeerError) string {
	switch e.Why {
	case pki.ErrExpired:
		return "the node may renew its certificate in a moment; if not, see its log, and both clocks"
	case pki.ErrNotYetValid:
		return "see that both clocks are right"
	}
	return "credential, token and address must be of one cluster"
}

// tokenHint says what to do about a token that is refused.
func tokenHint(reason string) string {
	switch reason {
	case client.TokenMalformed: // the error says it
		return ""
	case client.TokenSpent:
		return `have another one made: "stele token create"; "stele token list" tells who has used this one`
	case client.TokenTaken:
		return `"stele token create --node NODE" makes one for a node that there is`
	case client.TokenOtherNode:
		return `have one made for this node, with --node, or without for a new one`
	case client.TokenRemoved:
		return "empty its data folders to have the host join as a new node"
	}
	return `have another one made: "stele token create"; "stele token list" shows those that there are`
}
