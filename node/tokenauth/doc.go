// Package tokenauth authenticates connections without a client certificate by access tokens. Package security/token has the tokens; their
// records are files of the lock service (package authz). A connection stays its principal's for as long as it lasts, or until the token ends.
// The paper has no users with tokens. The package starts no goroutine.
//
// TA1. A token is verified at most so often for a host that sends invalid ones (package hostgate).
package tokenauth
