// Package blobfs is the block store: it keeps blobs and logs on the data
// folders of a node.
package blobfs
