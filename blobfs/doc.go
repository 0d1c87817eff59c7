// Package blobfs is the block store, in place of the paper's GFS (§4): it keeps
// blobs, which are written once and sealed, and logs, which are appended to.
//
// We depart from GFS in having no master and no list of chunks: whoever keeps a blob
// keeps its [Handle], which says all that a reader needs. Today a blob has one copy, on
// the node itself: package local.
//
// The package starts no goroutine.
package blobfs
