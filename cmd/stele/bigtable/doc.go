// Package bigtable is the command that helps programs with clients of Google's Cloud Bigtable: it prints
// small ones that work as printed.
package bigtable
