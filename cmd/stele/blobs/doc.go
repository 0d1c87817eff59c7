// Package blobs has the command blob: blobs of the replicated store (section 4 of the paper has GFS
// there), and the state of the store.
//
// A tally counts the replicas of extents by state, for stat, verify and fsck. The names of blobs of tables
// and logs are shown, but only blobs that "stele blob put" stored can be removed.
package blobs
