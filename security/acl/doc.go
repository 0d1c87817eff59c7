// Package acl implements access control on the cluster, on tables and on column families.
//
// In the paper, access control is per column family (§2: "Access control and both disk and memory
// accounting are performed at the column-family level"), and Chubby stores the lists (§4).
// Likewise here: grants are files of the lock service.
//
// # Terms
//
//   - A principal is a person or a program registered with the cluster under a name.
//   - A grant gives rights on the cluster, a table or a family to one principal or to every
//     registered principal. Grants refer to tables and families by id. Ids are never reused, so a
//     new table does not inherit the grants of an earlier one of the same name. Rights are
//     additive; there are no negative grants.
//   - Monitor is a right on the cluster only: to see the cluster's state, but no table.
//   - A policy is the set of grants on the cluster or on one table. It is one file.
//   - A view is a table as visible to one principal, compiled from all grants.
//   - The epoch increases with each change of any right: see below.
//   - A ticket records the epoch at which rights were checked.
//
// # Visibility
//
// A family on which a principal has no right is hidden. The principal gets the same answers as if
// the table had never had the family, or as if it had been dropped:
//
//	read, scan, filter, predicate   its cells are removed before any filter sees them, so they
//	                                affect no condition, limit, offset or sample; a row with no
//	                                other cells is absent
//	mutation that names it          fails like one that names a family that does not exist
//	deletion of a row               deletes the visible families, which requires the write right
//	                                on all of them; the others are kept
//	description of the table        lists the visible families and their groups
//
// A table with no visible family, on which the principal has no right, appears not to exist. An
// operation on something visible without the required right fails with a DeniedError. The
// duration of operations is not hidden.
//
// # Files
//
// Files are MessagePack, below /acl in the namespace. Times are in milliseconds since 1970.
//
//	/acl/cluster            [1, 0, [[principal, 0, rights]...]]
//	/acl/tables/<id>        [1, table's id, [[principal, family's id or 0, rights]...]]
//	/acl/principals/<name>  [1, name, disabled, generation, created, until, [[serial, ends]...]]
//	/acl/epoch              any content: only its generation is used
//
// The last element of a principal lists the certificates that were revoked individually. It is
// omitted if there are none.
//
// Grants are sorted by principal, then family. Principal "*" is everyone. Rights are the sum of
// read 1, write 2, admin 4 and monitor 8. Example: on table 16, ann has read and write on all
// families, and bob has read on family 2:
//
//	93 01 10 92 93 a3 61 6e 6e 00 03 93 a3 62 6f 62 02 01
//
// The element until is the expiry of the principal's last certificate that is not revoked, or 0 if
// there is none. A record of five elements lacks it; the principal is then assumed to have a
// certificate. Until does not grant access. It is used to check that an administrator of the
// cluster would remain. Access tokens have files of their own (package token). Example: ann,
// disabled, generation 300:
//
//	96 01 a3 61 6e 6e c3 cd 01 2c cf 00 00 01 a2 31 79 de 00 cf 00 00 01 a9 89 2b 0a 00
//
// # Revocation
//
// A change of rights writes the file with the rights, then the epoch file, and then returns. A
// server caches the epoch file in its session with the lock service, and caches views per epoch.
// The lock service commits a write of a cached file only when every session that caches it has
// dropped it or has expired. A session expires by its server's monotonic clock before it expires
// at the leader. So once the change has returned, no server uses an earlier epoch, and everything
// read under a later epoch includes the change.
//
// The package starts no goroutine.
//
// # Invariants
//
//	AC1. A view has exactly the rights of all grants together.
//	AC2. No answer to a principal depends on the content of families hidden from it.
//	AC3. No view is returned, and no ticket is valid, that lacks a change of rights which
//	    returned earlier (I12).
//	AC4. If rights are unknown, nothing is allowed.
//	AC5. Checking a cell against a view does not allocate.
//	AC6. Within a view of the table (In), no answer depends on rows and columns that the view does not have, and nothing else can be
//	    changed. A right on a view gives none on the table.
package acl
