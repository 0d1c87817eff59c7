// Package blobs stores files for users in the block store, inspects it for operators, and on the master's node has its garbage collected. The
// paper has no such files; its clients use GFS for them.
//
// A client writes a file as an upload (uploads.go), a row of writes at growing offsets, and seals it. A stored file is referenced by a
// file of the lock service (package roots), which is what makes it exist: it is written last, and deleted first. A check of the whole
// store (fsck.go) goes through everything that is referenced, and then through everything that nodes hold. It runs in steps that keep
// no state on the node.
//
// # Goroutines
//
//	goroutine        started by   ends with   does
//	upload sweep     Start        Close       ends idle uploads
//	CollectGarbage   the node     Ctx         runs rounds of garbage collection while the node is the master
//
// # Invariants
//
//	BL1. An upload is used only by its owner, by one call at a time, and its bytes are appended once, however often a call is repeated.
//	BL2. A file is named only after its bytes are durable, and its bytes are deleted only after its name, and only if the
//	    file that was removed is known not to be staged. Bytes that a backup, or a write of unknown outcome, may name are left to
//	    garbage collection.
//	BL3. Garbage is collected only under the mastership in which a round began.
package blobs
