// Package vfs is the one door to the disk. What stores data takes an [FS] and
// never calls package os, so that the same code runs on real folders and, in
// tests, on a memory file system that loses power at any chosen moment.
//
// There are three file systems:
//
//   - [OS] is the machine's own.
//   - [Mem] lives in memory and remembers what was synced and what was not.
//     [Mem.Crash] gives the file system as a machine would find it after a
//     power loss.
//   - [Faulty] stands before any other and asks a hook before each operation
//     that changes something: it fails or tears the Nth one. A Mem has one
//     built in.
//
// # The disk that Mem plays
//
// V1. File.Sync makes the file's bytes and size durable, not its name. SyncDir
// makes the names of one folder durable, not the bytes behind them.
//
// V2. Of what was written and not synced, any part may survive a crash, in
// units of sectors of 512 bytes; a sector is old or new, never mixed. A file
// whose size grew without its bytes reads as zeros there.
//
// V3. Of name changes not synced, any may survive, but for one name always the
// first so many of them in order. A rename is atomic.
//
// V4. After a Sync, or a StartSync, that failed, what it should have written is lost, though
// reads still show it, and a second Sync succeeds. So behaves Linux (Rebello et
// al., "Can Applications Recover from fsync Failures?", ATC 2020). The exception
// is ErrPowerCut, after which Crash decides.
//
// # Goroutines
//
// The package starts none. Every FS may be used by several goroutines at once, and
// so may a File, except that Close must not run beside other calls on it.
package vfs
