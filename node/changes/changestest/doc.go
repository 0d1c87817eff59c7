// Package changestest has a node that is the master, for tests of services that change the namespace: a lock service of one voter, the rights in
// its files, a mastership that the test can end, and a port. It has no disks, no gossip, and no tablets.
//
// The goroutines are those of the lock service, the master and the port, which end with the test.
package changestest
