// Package limits starts the program with 256 MiB, the least that a node may be given, and loads
// it in some twenty ways that take memory: writes, reads and scans of small, medium, large and huge cells, compactions, and clients that
// mean ill. The peak of the process stays below --memory (I13), what it refuses for that it refuses as
// overloaded, and it serves on. This is judged of
//
//   - an open node alone, without gossip and pages: each load, one after the other;
//   - a node as users run it, with certificates, gossip and pages: the same, and floods of the port of gossip, pages that are not
//     read, handshakes that are not ended, and strangers;
//   - an open node: all that write together;
//   - a node as users run it: all loads together, a quarter of those who mean ill;
//   - three nodes as users run them, which have replicas of each other's logs and files: all that write and read together, while
//     one is killed, its logs are sorted by the others, and it comes back.
//
// Of the last two it is not judged what single calls are told, but for wrong data: memory is what they are about.
//
// TestAttacks has a node with certificates attacked by users that have no rights, a right on one family of one table, an
// administrator's right on one table, or write on the cluster; by users that are disabled or revoked, and by clients that present
// no credential. Each attack lets one kind of request expand: filters, cursors, splits, tokens, refused grants, sessions, locks,
// watches and files of the lock service, uploads, and answers that are not read. Attackers are processes of their own. Judged are
//
//   - the memory of the nodes, as above;
//   - the requests of another user, at a steady rate of 200 a second: none may fail, or take longer than 5 s;
//   - in the long form alone (make hostile), the 99th percentile of that user's reads of single rows: less than 10 times what it
//     is without an attack. It depends on an otherwise idle machine;
//   - what an administrator must be able to do during the attack, and the audit log after it.
package limits
