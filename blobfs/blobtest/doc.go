// Package blobtest is the conformance suite for blob and log stores. The stores in memory, on local
// folders and on several nodes all pass it.
package blobtest
