// Package blobtest says by test what a block store is: one suite that the store in
// memory, on local folders and, later, on several nodes all pass.
package blobtest
