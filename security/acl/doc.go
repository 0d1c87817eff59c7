// Package acl says who may do what: read, write and administer the cluster, tables and
// column families.
//
// In the paper access control is per column family (§2: "Access control and both disk
// and memory accounting are performed at the column-family level"), and Chubby keeps the
// lists (§4). So here: grants are files of the lock service.
//
// # Nouns
//
//   - A principal is a person or program that the cluster knows by name.
//   - A grant gives one principal, or everyone that is known, rights on the cluster, on
//     a table, or on a family of it. Tables and families are named by ids, which are
//     never used again, so a new table does not inherit the grants of one of its name.
//     Rights add up; there are no grants that take away.
//   - Monitor is a right on the cluster alone: to see how it is, and no table.
//   - A policy is the grants on the cluster or on one table: one file.
//   - A view is a table as one principal may see it, compiled from all grants.
//   - The epoch grows with each change of any right: see below.
//   - A ticket says at which epoch rights were looked at.
//
// # What is not to be seen
//
// A family on which a principal has no right is absent. He gets the answers that he
// would get if the table had never had it, or if it had been dropped:
//
//	read, scan, filter, predicate   its cells are taken out before any filter sees them,
//	                                so no condition, limit, offset or sample tells of
//	                                them; a row with no other cells is not there
//	mutation that names it          the error of a family that does not exist
//	deletion of a row               deletes the families that he sees, all of which he
//	                                must be allowed to write; the others stay
//	description of the table        lists the families that he sees, and their groups
//
// A table of which he sees nothing, and on which he has no right, does not exist. Where he
// sees something and may not do with it what he asks, he is told so. How long an
// operation takes is not hidden.
//
// # Files
//
// MessagePack, below /acl in the namespace. Times are in milliseconds since 1970.
//
//	/acl/cluster            [1, 0, [[principal, 0, rights]...]]
//	/acl/tables/<id>        [1, table's id, [[principal, family's id or 0, rights]...]]
//	/acl/principals/<name>  [1, name, disabled, generation, created, until, [[serial, ends]...]]
//	/acl/epoch              anything: only its generation counts
//
// The last value of a principal has the certificates that were revoked one by one; it is left
// out if there are none.
//
// Grants are sorted by principal, then family; principal "*" is everyone; rights are the
// sum of read 1, write 2, admin 4 and monitor 8. Example: on table 16, ann may read and write all,
// and bob read the family 2:
//
//	93 01 10 92 93 a3 61 6e 6e 00 03 93 a3 62 6f 62 02 01
//
// Until is when the last certificate of a principal ends that was not revoked, 0 if there is none. A record without it, of five
// values, does not tell, and he counts as one who has a certificate. It lets nobody in: by it is judged whether somebody would be
// left who administers the cluster. Access tokens are not in it, since they have files (package token). Example: ann, disabled,
// generation 300:
//
//	96 01 a3 61 6e 6e c3 cd 01 2c cf 00 00 01 a2 31 79 de 00 cf 00 00 01 a9 89 2b 0a 00
//
// # Revocation
//
// Who changes rights writes their file, then the epoch file, and then returns. A
// server caches the epoch file in its session with the lock service, and keeps views as of
// an epoch. The lock service commits a write of a cached file only when all sessions that
// cache it have dropped it or are over, each by its server's own monotonic clock before
// the leader's. So once the change has returned, no server believes in the epoch before
// it, and what is read under a later epoch has the change in it.
//
// # Goroutines
//
// The package starts none.
//
// # Invariants
//
//	A1. A view has the rights that the grants give together, neither more nor less.
//	A2. Nothing that a principal gets depends on what is in families that are absent
//	    for him.
//	A3. No view is returned, and no ticket holds, that lacks a change of rights which
//	    had returned before (I12).
//	A4. When rights are not known, nothing is allowed.
//	A5. To ask a view about a cell takes no allocation.
package acl
