// Package migrate moves a table to the cluster that replicates it.
//
// The source's table becomes read-only, its replica receives the last changes, and is promoted. Changes are refused from the first to the last
// step. If a step before the promotion fails, the source accepts changes again. After a promotion with an unknown outcome it stays read-only.
//
// # Invariants
//
//	MG1. A change that either cluster has acknowledged is in the table of the target once it is promoted.
//	MG2. At no time do both clusters accept changes.
//	MG3. A migration that has failed or was interrupted leaves one of: the source accepts changes; the source is read-only, and the error names the command that lets
//	     it accept them again. Migrating once more continues.
package migrate
