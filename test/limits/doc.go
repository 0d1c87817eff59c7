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
package limits
