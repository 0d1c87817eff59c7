// Package authz decides what callers may do on a node, and records it in the audit log.
//
// A Subject is the peer of a connection, or the principal for which another node forwards a request. Each method has a Guard; the
// Authorizer admits a call by its guard and the subject's rights before the call's parameters are used. Rights has this node's view of
// users' rights (package security/acl), as of an epoch in the lock service. Access is what a principal may do with one table in one
// request; the tablet server consults it (tablet.Access). Rights may change while a call runs: they are checked again before the
// answer, and the answer is withheld if they were lost.
//
// AuditLog records actions of administrators before they are answered, and refusals without waiting.
//
// The package starts no goroutines. Subjects, rights and the audit log are safe for concurrent use; an Access belongs to one request.
//
// Invariants:
//
//	Z1. No method without a guard can be registered, and no call runs before its guard has admitted it (I12).
//	Z2. No answer is given on rights that were revoked before the answer, if the revocation had returned (I12).
//	Z3. A node whose session with the lock service is in doubt admits no principal.
package authz
