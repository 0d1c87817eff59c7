// Package bigtable has tests of Cloud Bigtable's API: with Google's clients, which come from their
// registries, and beside the public emulator. They run against real nodes in the process of the test.
package bigtable
