// Package names parses and formats the resource names of the Cloud Bigtable API, such as
// projects/p/instances/i/tables/t.
//
// The project is any text and is not stored: answers repeat the project of the request. Instances
// are not stored yet either. Every instance name is an alias of the cluster's only namespace, so a
// program that was written for an emulator needs no change. The id of a table is the name of a table
// of the cluster.
//
// # Limits
//
// Limits accepts what the cluster can store: 64 bytes of [-_.a-zA-Z0-9] for a table, and any
// instance id of up to 64 bytes. With Limits.Strict it accepts only what Google's service accepts.
//
// # Invariants
//
//	GN1. Parsing the String of a name returns the name.
//	GN2. An accepted id has no slash, so no two names have the same String.
package names
