// Package blobtest says by test what a block store is: a suite for blobs and one for logs, which the stores in
// memory, on local folders and on several nodes all pass.
package blobtest
