// Package tables has the commands of schemas, views and tablets: table, family and tablet.
//
// A change of a schema is sent to the master's node; see "The path of a schema change" in ARCHITECTURE.md.
// Destructive commands ask for confirmation, and those that delete data have --dry-run. A tabletList reads METADATA, and prints a
// row for each tablet. No goroutines.
package tables
