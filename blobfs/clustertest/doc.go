// Package clustertest runs the block stores of several nodes in one process, for tests of package
// blobfs and of the packages below it. Tests kill nodes, cut connections, and damage disks.
package clustertest
