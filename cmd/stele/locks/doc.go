// Package locks has the command lock: files and locks of the lock service, which section 4 of the paper
// calls Chubby.
//
// "stele lock hold" runs a command under a lock, and stops it when the lock is lost. Its lockMonitor watches
// the session, the signals of this process and the end of the command.
package locks
