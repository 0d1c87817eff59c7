// Package access has the commands of users, their credentials, rights and quotas: token, authority, user,
// whoami, acl, quota and usage.
//
// They call the node at --addr. Only "stele authority" reads a credential itself: it refuses to finish a
// rotation that would invalidate the caller's own. No goroutines.
package access
