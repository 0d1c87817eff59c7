// Package migrate moves a table to the cluster that replicates it.
//
// The source's table becomes read-only, its replica receives the last changes, and is promoted. Changes are refused between the first and the last
// step. Each step has one outcome that is not known to be undone: so the source accepts changes again only if the promotion has certainly not begun.
//
// # Invariants
//
//	MG1. A change that either cluster has acknowledged is in the table of the target once it is promoted.
//	MG2. At no time do both clusters accept changes.
//	MG3. A migration that has failed or was interrupted leaves one of: the source accepts changes; the source is read-only, and the error names the command that lets
//	     it accept them again. Migrating once more continues.
package migrate
