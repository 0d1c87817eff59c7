// Package bigtable has tests of Cloud Bigtable's API with Google's clients: they come from their
// registries, and run against real nodes in the process of the test.
package bigtable
