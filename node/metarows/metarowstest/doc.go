// Package metarowstest has METADATA for tests of packages that read and change its rows: a table in memory behind the client of package client,
// so that filters, conditional changes and encodings are those of a cluster. Tests may plant damage in its cells, and have requests fail
// before or after their execution.
//
// The goroutines are those of the client and of an authztest.Server, which end with the test.
package metarowstest
