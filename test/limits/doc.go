// Package limits runs the program with 256 MiB, the minimum for a node, under some twenty loads
// that use memory: writes, reads and scans of small, medium, large and huge cells, compactions, and
// hostile clients. The peak of the process must stay below --memory (I13). Requests rejected for
// lack of memory must fail as overloaded, and the node must keep serving. This is checked for
//
//   - an open node alone, without gossip and pages: each load in turn;
//   - a node with certificates, gossip and pages, as in production: the same, and floods of the gossip
//     port, pages that are not read, unfinished handshakes, and clients without certificates;
//   - an open node: all writes together;
//   - a production-like node: all loads together, with a quarter of the hostile clients;
//   - three production-like nodes with replicas of each other's logs and files: all writes and reads
//     together, while one node is killed, the others sort its logs, and it is started again.
//
// For the last two, the results of single calls are not checked, except for wrong data: they test
// memory.
//
// TestAttacks attacks a node with certificates. The attackers are users with no rights, with a
// right on one family of one table, with the admin right on one table, or with write on the
// cluster; disabled or revoked users; and clients without credentials. Each attack amplifies one
// kind of request: filters, cursors, splits, tokens, refused grants, sessions, locks, watches and
// files of the lock service, uploads, and answers that are not read. Attackers are separate
// processes. The test checks
//
//   - the memory of the nodes, as above;
//   - the requests of another user, at a steady rate of 200 a second: none may fail, or take longer than
//     5 s;
//   - in the long form (make hostile) only, the 99th percentile of that user's single-row reads: less than
//     10 times its value without an attack. This requires an otherwise idle machine;
//   - the operations that an administrator must be able to do during the attack, and the audit log after
//     it.
package limits
