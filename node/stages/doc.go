// Package stages records how far each node is with a change that all nodes make in stages: the replacement of the authority, or a rotation
// of the gossip key. Package security/rollover has the stages. Each node has a file in the lock service that only it writes; the master
// starts the next stage when no file is behind. The paper has no such changes. The package starts no goroutine.
package stages
