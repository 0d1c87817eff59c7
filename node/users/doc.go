// Package users manages users, their certificates and access tokens, and their grants (paper §2: access control by column family; the
// paper leaves the management of users open). The master's node makes changes; package authz applies them.
//
// Each change of rights ends with a write of the epoch file, which invalidates what all nodes have cached: when it has returned, no node
// serves a request by the earlier rights (I12). The last administrator cannot be removed. It starts no goroutine.
package users
